// SPDX-License-Identifier: Apache-2.0
// What the run's device does while it trains, by the driver's sensors.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/cuda/nvml/sensors.h"
#include "core/device.h"
#include "core/export.h"
#include "core/io/json_text.h"

namespace hearth::train {

/// Sums of a device's readings, and what they say that a person has to know.
class HEARTH_API DeviceInterval {
 public:
  /// `name` is the device's, for the messages.
  explicit DeviceInterval(std::string name) : name_(std::move(name)) {}

  /// Takes a reading in; `seconds` is a clock.
  void add(const cuda::DeviceReadings& now, double seconds);
  /// Adds the readings since the last call to a record, under keys that begin with `device_`; what the device does not
  /// give is absent, and so is all of it where nothing was read. Means: `use`, `power` in W, `clock` and `memory_clock`
  /// in MHz, bytes a second by PCIe and NVLink; the largest `memory` and `temperature`; `energy` in J; what held the
  /// clocks down, as parts of the readings (`throttled`); memory errors by ECC, and numbers of Xid errors.
  void write(Json& record);
  /// What is new, of each kind once: why the device is slow, as seen by write(), or sick.
  std::vector<std::string> take_messages() { return std::exchange(messages_, {}); }
  /// Of all readings; nothing where the device tells neither energy nor power.
  std::optional<double> joules() const { return joules_; }

 private:
  struct Sum {
    double sum = 0;
    int count = 0;
  };
  struct Last {
    cuda::DeviceReadings readings;
    double seconds = 0;
  };
  void add_mean(const std::string& key, const std::optional<double>& value);
  void add_largest(const std::string& key, const std::optional<double>& value);
  /// Adds the growth of a counter.
  void add_growth(const std::string& key, const std::optional<double>& before, const std::optional<double>& now);
  void add_energy(const cuda::DeviceReadings& now, double seconds);
  void add_errors(const cuda::DeviceReadings& now);
  void tell_once(const std::string& kind, const std::string& text);

  std::string name_;
  std::optional<Last> last_;
  double seconds_ = 0;  ///< between readings, since write()
  std::map<std::string, Sum> means_;
  std::map<std::string, double> largest_, growths_;
  std::map<cuda::Throttle, int> throttled_;
  int throttle_readings_ = 0;
  std::vector<std::int64_t> xids_;
  std::optional<double> joules_;
  std::set<std::string> told_;
  std::vector<std::string> messages_;
};

/// Reads a device's sensors once a second, on a thread of its own: nothing here waits for them unless it says so.
class HEARTH_API DeviceMeter {
 public:
  using Open = std::function<std::unique_ptr<cuda::DeviceSensors>(std::string& why_not)>;

  /// Starts with the device's own sensors; a CPU has none, and costs nothing.
  explicit DeviceMeter(Device device);
  /// Starts with such sensors, which are opened, read and closed on the thread.
  DeviceMeter(std::string name, Open open, std::chrono::milliseconds period = std::chrono::seconds(1));
  ~DeviceMeter();
  DeviceMeter(const DeviceMeter&) = delete;
  DeviceMeter& operator=(const DeviceMeter&) = delete;

  /// As DeviceInterval::write(). With `reads_first` it waits for a reading of now, two seconds at most.
  void write(Json& record, bool reads_first = false);
  /// Why there are no readings, and what DeviceInterval says.
  std::vector<std::string> take_messages();
  /// As DeviceInterval::joules(), after a reading of now as in write().
  std::optional<double> read_joules();

 private:
  void start(Open open);
  void run(const Open& open);
  /// Waits for a reading that begins after this call, where one comes.
  void wait_for_reading(std::unique_lock<std::mutex>& lock);

  std::chrono::milliseconds period_{0};
  std::mutex mutex_;
  std::condition_variable wakes_, has_read_;
  DeviceInterval interval_;
  std::vector<std::string> messages_;
  std::int64_t wanted_ = 0;  ///< readings that were asked for
  std::int64_t done_ = 0;    ///< of those, that were taken
  bool stops_ = false;
  bool ended_ = true;  ///< no more readings come
  std::thread thread_;
};

}  // namespace hearth::train
