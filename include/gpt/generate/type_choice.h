// Which of several types of weights generates soonest on this CPU. Half the bytes usually take half the time, but not where converting them
// takes longer than reading them. It is measured once for a machine and a size of model, and kept in the folder of caches.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>

namespace gpt::generate {

// Seconds for a token, by type.
using TypeTimes = std::map<at::ScalarType, double>;

// What the products of a token take with so many weights of bfloat16 and of float32, with LibTorch's threads.
TypeTimes measure_types(int64_t weights);

// The same from the file, if it has it for this processor, number of threads and size of model; otherwise measured, said on the log, and
// written there. A file that cannot be read or written does no harm. Empty path: nothing is kept.
TypeTimes known_types(int64_t weights, const std::string& path,
                      const std::function<TypeTimes(int64_t)>& measure = measure_types);

// The file that the times are kept in; empty where there is no home folder.
std::string type_times_file();

}  // namespace gpt::generate
