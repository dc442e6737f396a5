// settings.cpp: PyTorch's settings as cupool's. PyTorch keeps them in the process and says nothing when they change,
// so the function that parses them is wrapped. What is said later wins: PyTorch's settings, CUPOOL_ALLOC_CONF, and what
// install was given.
#include "allocator.h"

#include <c10/core/AllocatorConfig.h>
#include <c10/util/env.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <iomanip>
#include <limits>
#include <locale>
#include <sstream>

namespace cupool_torch {

namespace {

using Config = c10::CachingAllocator::AcceleratorAllocatorConfig;

// PyTorch rounds sizes by the power of two that they begin with, from 1 MiB to 32 GiB and above.
std::string divisions() {
  const std::vector<size_t> by = Config::roundup_power2_divisions();
  bool any = false, same = true;
  for (const size_t d : by) {
    any = any || d > 1;
    same = same && d == by.front();
  }
  if (!any) {
    return "1";
  }
  if (same) {
    return std::to_string(by.front());
  }
  std::ostringstream text;
  text << "[";
  for (size_t i = 0; i < by.size(); i++) {
    if (i + 1 < by.size()) {
      text << (size_t{1} << i) << ":" << std::max<size_t>(by[i], 1) << ",";
    } else {
      text << ">:" << std::max<size_t>(by[i], 1);
    }
  }
  text << "]";
  return text.str();
}

// The settings that change while a pool is open, each with its names.
const std::vector<std::vector<std::string>>& changeableNames() {
  static const std::vector<std::vector<std::string>> names = {{"roundup_power2_divisions", "divisions"},
                                                              {"max_split_size_mb", "max_split"},
                                                              {"max_non_split_rounding_mb", "max_non_split_rounding"},
                                                              {"garbage_collection_threshold"}};
  return names;
}

// Those that stay and have two names.
const std::vector<std::vector<std::string>>& otherNames() {
  static const std::vector<std::vector<std::string>> names = {{"expandable_segments", "backing"},
                                                              {"per_process_memory_fraction", "fraction"},
                                                              {"large_segment_size_mb", "large_segment"}};
  return names;
}

// The other names of a setting, and its own.
std::vector<std::string> namesOf(const std::string& key, const std::vector<std::vector<std::string>>& of = changeableNames()) {
  for (const auto& names : of) {
    if (std::find(names.begin(), names.end(), key) != names.end()) {
      return names;
    }
  }
  return {};
}

void put(std::map<std::string, std::string>* settings, const std::string& key, const std::string& value) {
  for (const auto* of : {&changeableNames(), &otherNames()}) {
    for (const auto& name : namesOf(key, *of)) {
      settings->erase(name);
    }
  }
  (*settings)[key] = value;
}

// Adds "KEY:VALUE,KEY:[A:B,C:D]" to the settings, over what is there.
void add(std::map<std::string, std::string>* settings, const std::string& text) {
  int depth = 0;
  std::string key, value;
  bool afterColon = false;
  const auto finish = [&] {
    if (!key.empty()) {
      put(settings, key, value);
    }
    key.clear();
    value.clear();
    afterColon = false;
  };
  for (const char c : text) {
    if (c == ' ' || c == '\t' || c == '\n') {
      continue;
    }
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    if (c == ',' && depth == 0) {
      finish();
    } else if (c == ':' && !afterColon) {
      afterColon = true;
    } else {
      (afterColon ? value : key) += c;
    }
  }
  finish();
}

// As the library reads it, whatever locale the program has.
std::string decimal(double value) {
  std::ostringstream text;
  text.imbue(std::locale::classic());
  text << std::setprecision(std::numeric_limits<double>::max_digits10) << value;
  return text.str();
}

// What can change while the pool is open, as PyTorch has it now. Values are named though they are its defaults: they
// may follow others.
std::map<std::string, std::string> changeable() {
  std::map<std::string, std::string> settings;
  settings["roundup_power2_divisions"] = divisions();
  const size_t split = Config::max_split_size();
  if (split == std::numeric_limits<size_t>::max() || Config::use_expandable_segments()) { // which are always split
    settings["max_split"] = "0";
  } else {
    settings["max_split"] = std::to_string(split);
    settings["max_non_split_rounding"] = std::to_string(Config::max_non_split_rounding_size());
  }
  settings["garbage_collection_threshold"] = decimal(Config::garbage_collection_threshold());
  return settings;
}

} // namespace

std::string join(const std::map<std::string, std::string>& settings) {
  std::string text;
  for (const auto& [key, value] : settings) {
    text += (text.empty() ? "" : ",") + key + ":" + value;
  }
  return text;
}

// What the environment and install say. Of variables that are of one setting the library reads the others.
std::map<std::string, std::string> Allocator::own() const {
  std::map<std::string, std::string> settings;
  for (const std::string key : {"backing", "divisions", "garbage_collection_threshold", "grow_wait", "idle_order",
                                "max_chunk", "max_non_split_rounding", "max_split"}) {
    std::string name = "CUPOOL_" + key;
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
    if (const char* value = std::getenv(name.c_str()); value != nullptr && *value != 0) {
      add(&settings, key + ":" + value);
    }
  }
  if (const char* environment = std::getenv("CUPOOL_ALLOC_CONF")) {
    add(&settings, environment);
  }
  add(&settings, extra_);
  return settings;
}

// What can change, under that.
std::map<std::string, std::string> Allocator::changeableSettings() const {
  std::map<std::string, std::string> settings = changeable();
  for (const auto& [key, value] : own()) {
    if (!namesOf(key).empty()) {
      put(&settings, key, value);
    }
  }
  return settings;
}

// The part of a device that PyTorch may use before it is open: as the program says, or PyTorch's settings.
double Allocator::fraction(const Device& d) {
  return d.fraction.value_or(memoryFraction(static_cast<const native::CUDAAllocatorConfig*>(nullptr), 0));
}

// expandable_segments ends max_split_size_mb. The library takes virtual memory in any case where the device has it, and
// snapshots say so where PyTorch's setting does. large_segment_size_mb is of PyTorch's own segments.
std::string Allocator::settings() const {
  std::map<std::string, std::string> settings = changeable();
  // Programs for PyTorch lean on it: memory goes to another stream when all of the device have passed its free.
  settings["idle_order"] = "device";
  // And much of what they free waits for the GPU, which may be a second behind a program with some streams.
  settings["grow_wait"] = "1s";
  // PyTorch's allocator maps memory of another process only where its pieces have one size (ipc.cpp).
  if (c10::utils::check_env("TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC") == true) {
    settings["max_chunk"] = "2MiB";
  }
  const auto over = own();
  const auto says = [&](const char* key, const char* value) {
    const auto found = over.find(key);
    return found != over.end() && found->second == value;
  };
  // PyTorch's sizes are for segments that are split.
  if (says("backing", "vmm") || says("expandable_segments", "True") || says("max_split", "0")) {
    settings.erase("max_split");
    settings.erase("max_non_split_rounding");
  }
  for (const auto& [key, value] : over) {
    put(&settings, key, value);
  }
  return join(settings);
}

void Allocator::settingsChanged() {
  std::string settings = join(changeableSettings());
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (settings == applied_) {
      return;
    }
    applied_.clear(); // until all devices have them
  }
  for (int i = 0; i < count_; i++) {
    if (isOpen(i)) {
      check(lib.configure_(i, settings.c_str()));
    }
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  applied_ = std::move(settings);
}

void Allocator::watchSettings() {
  static const bool once = [this] {
    applied_ = join(changeableSettings());
    auto& hook = Config::getConfigParserHook();
    hook = [parse = hook, this](const std::string& text) {
      if (parse) {
        parse(text);
      }
      settingsChanged();
    };
    return true;
  }();
  (void)once;
}

} // namespace cupool_torch
