// SPDX-License-Identifier: Apache-2.0
#include "train/profile/device_meter.h"

#include <pthread.h>

#include <algorithm>
#include <cmath>
#include <system_error>
#include <utility>

#include "core/cuda/stream.h"
#include "core/error.h"

namespace hearth::train {
namespace {

using cuda::DeviceReadings;
using cuda::Throttle;

// Part of the readings from which a device that is held back is told of.
constexpr double much_throttled = 0.5;
constexpr std::chrono::seconds longest_reading{2};

struct ThrottleText {
  const char *name, *remedy;
};
ThrottleText text_of(Throttle reason) {
  switch (reason) {
    case Throttle::power_limit:
      return {"power limit", "its load takes all the power that its limit allows (nvidia-smi -q -d POWER)"};
    case Throttle::temperature:
      return {"temperature", "it is too hot; see to its cooling"};
    case Throttle::hardware_temperature:
      return {"temperature, by the hardware", "it is much too hot; see to its cooling"};
    case Throttle::power_brake:
      return {"power brake", "the machine's power supply does not give what it needs"};
    case Throttle::hardware:
      break;
  }
  return {"hardware", "see to its power supply and cooling (nvidia-smi -q -d PERFORMANCE)"};
}

double clock_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

void DeviceInterval::add_mean(const std::string& key, const std::optional<double>& value) {
  if (!value) return;
  means_[key].sum += *value;
  ++means_[key].count;
}

void DeviceInterval::add_largest(const std::string& key, const std::optional<double>& value) {
  if (!value) return;
  const auto [known, is_new] = largest_.try_emplace(key, *value);
  if (!is_new) known->second = std::max(known->second, *value);
}

void DeviceInterval::add_growth(const std::string& key, const std::optional<double>& before,
                                const std::optional<double>& now) {
  // A counter that began anew has no growth.
  if (before && now && *now >= *before) growths_[key] += *now - *before;
}

void DeviceInterval::add_energy(const DeviceReadings& now, double seconds) {
  const DeviceReadings& before = last_->readings;
  std::optional<double> joules;
  if (before.energy && now.energy && *now.energy >= *before.energy)
    joules = *now.energy - *before.energy;
  else if (before.power && now.power)
    joules = (*before.power + *now.power) / 2 * (seconds - last_->seconds);
  if (!joules) return;
  growths_["device_energy"] += *joules;
  joules_ = joules_.value_or(0) + *joules;
}

void DeviceInterval::add_errors(const DeviceReadings& now) {
  if (const double count = now.ecc_uncorrected.value_or(0); !last_ && count > 0)
    tell_once("ecc before", join_text(name_, " has had ", count, " uncorrected memory errors since its ",
                                      "driver was loaded; reset or replace it if there are more"));
  if (last_ && now.ecc_uncorrected.value_or(0) > last_->readings.ecc_uncorrected.value_or(0))
    tell_once("ecc",
              join_text(name_, " has uncorrected memory errors: its results may be wrong; reset ", "or replace it"));
  for (const std::int64_t xid : now.xids) {
    tell_once(join_text("xid ", xid),
              join_text(name_, " reports the error Xid ", xid,
                        "; the kernel's log (dmesg) and NVIDIA's table of Xid errors say more"));
    if (std::ranges::find(xids_, xid) == xids_.end()) xids_.push_back(xid);
  }
  if (!now.lost.empty()) tell_once("lost", join_text(name_, " no longer answers: ", now.lost));
}

void DeviceInterval::tell_once(const std::string& kind, const std::string& text) {
  if (told_.insert(kind).second) messages_.push_back(text);
}

void DeviceInterval::add(const DeviceReadings& now, double seconds) {
  add_mean("device_use", now.use);
  add_mean("device_power", now.power);
  add_mean("device_clock", now.clock);
  add_mean("device_memory_clock", now.memory_clock);
  add_mean("device_pcie_sent", now.pcie_sent);
  add_mean("device_pcie_received", now.pcie_received);
  add_largest("device_memory", now.memory);
  add_largest("device_temperature", now.temperature);
  if (now.throttled) {
    ++throttle_readings_;
    for (const Throttle reason : *now.throttled) ++throttled_[reason];
  }
  add_errors(now);
  if (last_) {
    const DeviceReadings& before = last_->readings;
    add_energy(now, seconds);
    add_growth("device_nvlink_sent", before.nvlink_sent, now.nvlink_sent);
    add_growth("device_nvlink_received", before.nvlink_received, now.nvlink_received);
    add_growth("device_ecc_corrected", before.ecc_corrected, now.ecc_corrected);
    add_growth("device_ecc_uncorrected", before.ecc_uncorrected, now.ecc_uncorrected);
    seconds_ += seconds - last_->seconds;
  }
  last_ = {now, seconds};
}

void DeviceInterval::write(Json& record) {
  for (const auto& [key, mean] : means_) record.set(key, mean.sum / mean.count);
  for (const auto& [key, value] : largest_) record.set(key, value);
  for (const auto& [key, value] : growths_) {
    const bool is_rate = key.starts_with("device_nvlink");
    if (!is_rate || seconds_ > 0) record.set(key, is_rate ? value / seconds_ : value);
  }
  if (throttle_readings_ > 0) {
    Json parts = Json::object();
    for (const auto& [reason, count] : throttled_) {
      const ThrottleText text = text_of(reason);
      const double part = static_cast<double>(count) / throttle_readings_;
      parts.set(text.name, part);
      if (part >= much_throttled)
        tell_once(text.name, join_text(name_, " is held back, in ", std::lround(100 * part),
                                       " % of the readings, by its ", text.name, ": ", text.remedy));
    }
    record.set("device_throttled", std::move(parts));
  }
  if (!xids_.empty()) record.set("device_xid", Json::array_of(xids_));
  means_.clear();
  largest_.clear();
  growths_.clear();
  throttled_.clear();
  xids_.clear();
  throttle_readings_ = 0;
  seconds_ = 0;
}

DeviceMeter::DeviceMeter(Device device) : period_(std::chrono::seconds(1)), interval_(name_of(device)) {
  if (device.is_cuda())
    start([uuid = cuda::device_info(device).uuid](std::string& why_not) { return cuda::open_sensors(uuid, why_not); });
}

DeviceMeter::DeviceMeter(std::string name, Open open, std::chrono::milliseconds period)
    : period_(period), interval_(std::move(name)) {
  start(std::move(open));
}

DeviceMeter::~DeviceMeter() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  wakes_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void DeviceMeter::start(Open open) {
  const auto end = [this] {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    has_read_.notify_all();
  };
  ended_ = false;
  try {
    thread_ = std::thread([this, end, open = std::move(open)] {
      pthread_setname_np(pthread_self(), "hearth-meter");
      try {
        run(open);
      } catch (...) {
        // A meter is no reason to stop.
      }
      end();
    });
  } catch (const std::system_error&) {
    end();
  }
}

void DeviceMeter::run(const Open& open) {
  std::string why_not;
  const std::unique_ptr<cuda::DeviceSensors> sensors = open(why_not);
  std::unique_lock lock(mutex_);
  if (!sensors) {
    if (!why_not.empty()) messages_.push_back("there are no readings of the device: " + why_not);
    return;
  }
  while (!stops_) {
    const std::int64_t begun = wanted_;
    lock.unlock();
    const DeviceReadings now = sensors->read();
    lock.lock();
    interval_.add(now, clock_seconds());
    done_ = begun;
    has_read_.notify_all();
    wakes_.wait_for(lock, period_, [&] { return stops_ || wanted_ > done_; });
  }
}

void DeviceMeter::wait_for_reading(std::unique_lock<std::mutex>& lock) {
  const std::int64_t number = ++wanted_;
  wakes_.notify_all();
  // A device that no longer answers must not keep the run from its end.
  (void)has_read_.wait_for(lock, longest_reading, [&] { return ended_ || done_ >= number; });
}

void DeviceMeter::write(Json& record, bool reads_first) {
  std::unique_lock lock(mutex_);
  if (reads_first) wait_for_reading(lock);
  interval_.write(record);
}

std::vector<std::string> DeviceMeter::take_messages() {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> all = std::exchange(messages_, {}), more = interval_.take_messages();
  all.insert(all.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  return all;
}

std::optional<double> DeviceMeter::read_joules() {
  std::unique_lock lock(mutex_);
  wait_for_reading(lock);
  return interval_.joules();
}

}  // namespace hearth::train
