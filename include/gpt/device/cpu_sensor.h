// What Linux says of the processors and the memory that a run uses: its own share of them, and what others take.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpt/device/device_sensor.h"

namespace gpt::device {

// In seconds of all processors together.
struct ProcessorTimes {
  double busy = 0, stolen = 0;  // stolen: the host of a virtual machine ran something else
};

// Times of these processors, out of /proc/stat. Nothing where a processor is missing, as in some containers.
std::optional<ProcessorTimes> processor_times(std::string_view proc_stat, const std::vector<int64_t>& processors,
                                              double ticks_per_second);

class CpuSensor : public DeviceSensor {
 public:
  struct Senses {
    std::function<std::string()> proc_stat;        // its text, empty where there is none
    std::function<double()> seconds, own_seconds;  // of a steady clock; that all threads of this process have run
    struct Memory {
      int64_t bytes = 0, free = 0;
    };
    std::function<Memory()> memory;  // of the machine or the group
    double ticks_per_second = 100;
  };
  static Senses of_this_machine();

  struct Machine {
    std::vector<int64_t> processors = {};  // that this process may run on
    int64_t usable = 0;                    // of them, at a time: its group may have a quota
    int64_t threads = 0;                   // that compute
  };
  CpuSensor(Machine machine, Senses senses);
  void begin() override;
  report::DeviceUse read() override;

 private:
  struct Mark {
    double seconds = 0, own = 0;
    std::optional<ProcessorTimes> all = {};
  };
  Mark mark() const;

  const Machine machine_;
  const Senses senses_;
  Mark before_;
};

}  // namespace gpt::device
