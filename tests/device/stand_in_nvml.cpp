// A stand-in for NVML, as a library with NVML's names. The file that GPT_STAND_IN_NVML names says what each function answers, in a line
// "NAME STATUS VALUE..."; a function without one is not supported. A line "device UUID PCI" names the only GPU. With STAND_IN_IS_OLD the
// library has what drivers of 2013 had.
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr int kNotSupported = 3, kNotFound = 6;
int the_device = 0;

struct Answer {
  int status = kNotSupported;
  std::vector<unsigned long long> values;
};

Answer answer_of(const std::string& name) {
  const char* const path = std::getenv("GPT_STAND_IN_NVML");
  std::ifstream in(path ? path : "");
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    Answer answer;
    std::string first;
    if (!(words >> first >> answer.status) || first != name) continue;
    for (unsigned long long value; words >> value;) answer.values.push_back(value);
    return answer;
  }
  return {};
}

std::string word_of_device(int which) {
  const char* const path = std::getenv("GPT_STAND_IN_NVML");
  std::ifstream in(path ? path : "");
  for (std::string line, first, words[2]; std::getline(in, line);) {
    std::istringstream stream(line);
    if (stream >> first >> words[0] >> words[1] && first == "device") return words[which];
  }
  return "";
}

int find(const char* asked, int which, void** device) {
  if (word_of_device(which) != asked) return kNotFound;
  *device = &the_device;
  return 0;
}

template <class Number>
int give(const char* name, void* device, Number* into) {
  const Answer answer = answer_of(name);
  if (device != &the_device || answer.status != 0) return device == &the_device ? answer.status : 2;
  *into = static_cast<Number>(answer.values.at(0));
  return 0;
}

}  // namespace

// As in the documentation of NVML's API.
extern "C" {

struct nvmlUtilization_t {
  unsigned int gpu, memory;
};
struct nvmlMemory_t {
  unsigned long long total, free, used;
};
union nvmlValue_t {
  double dVal;
  unsigned int uiVal;
  unsigned long long ullVal;
};
struct nvmlSample_t {
  unsigned long long timeStamp;
  nvmlValue_t sampleValue;
};
struct nvmlViolationTime_t {
  unsigned long long referenceTime, violationTime;
};

int nvmlInit_v2() { return answer_of("nvmlInit_v2").status; }
int nvmlShutdown() { return 0; }
const char* nvmlErrorString(int status) { return status == 9 ? "Driver Not Loaded" : "Some Error"; }
int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) { return find(uuid, 0, device); }

int nvmlDeviceGetUtilizationRates(void* device, nvmlUtilization_t* utilization) {
  utilization->memory = 77;
  return give("nvmlDeviceGetUtilizationRates", device, &utilization->gpu);
}

int nvmlDeviceGetMemoryInfo(void* /*device*/, nvmlMemory_t* memory) {
  const Answer answer = answer_of("nvmlDeviceGetMemoryInfo");
  if (answer.status != 0) return answer.status;
  *memory = {answer.values.at(0), answer.values.at(0) - answer.values.at(1), answer.values.at(1)};
  return 0;
}

int nvmlDeviceGetPowerUsage(void* device, unsigned int* power) {
  return give("nvmlDeviceGetPowerUsage", device, power);
}

int nvmlDeviceGetTemperature(void* device, int sensor, unsigned int* degrees) {
  return sensor == 0 ? give("nvmlDeviceGetTemperature", device, degrees) : 2;
}

int nvmlDeviceGetClockInfo(void* device, int type, unsigned int* clock) {
  return type == 1 ? give("nvmlDeviceGetClockInfo", device, clock) : 2;
}

int nvmlDeviceGetMaxClockInfo(void* device, int type, unsigned int* clock) {
  return type == 1 ? give("nvmlDeviceGetMaxClockInfo", device, clock) : 2;
}

#ifndef STAND_IN_IS_OLD
int nvmlDeviceGetHandleByPciBusId_v2(const char* pci, void** device) { return find(pci, 1, device); }

// The values are pairs of a time and a utilization.
int nvmlDeviceGetSamples(void* /*device*/, int type, unsigned long long last, int* value_type, unsigned int* count,
                         nvmlSample_t* samples) {
  const Answer answer = answer_of("nvmlDeviceGetSamples");
  if (answer.status != 0 || type != 1) return answer.status != 0 ? answer.status : 2;
  *value_type = 1;
  if (!samples) return *count = 120, 0;
  unsigned int written = 0;
  for (size_t i = 0; i + 1 < answer.values.size() && written < *count; i += 2) {
    if (answer.values[i] <= last) continue;
    samples[written].timeStamp = answer.values[i];
    samples[written].sampleValue.ullVal = 0xABCDABCD00000000 + answer.values[i + 1];  // its other half means nothing
    ++written;
  }
  *count = written;
  return written > 0 ? 0 : kNotFound;
}

int nvmlDeviceGetTotalEnergyConsumption(void* device, unsigned long long* energy) {
  return give("nvmlDeviceGetTotalEnergyConsumption", device, energy);
}

int nvmlDeviceGetEnforcedPowerLimit(void* device, unsigned int* power) {
  return give("nvmlDeviceGetEnforcedPowerLimit", device, power);
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void* device, unsigned long long* reasons) {
  return give("nvmlDeviceGetCurrentClocksThrottleReasons", device, reasons);
}

// The values are those of the policies 0 and 1.
int nvmlDeviceGetViolationStatus(void* /*device*/, int policy, nvmlViolationTime_t* time) {
  const Answer answer = answer_of("nvmlDeviceGetViolationStatus");
  if (answer.status != 0 || policy > 1) return answer.status != 0 ? answer.status : 2;
  *time = {0, answer.values.at(static_cast<size_t>(policy))};
  return 0;
}
#endif

}  // extern "C"
