// What loads really took: a small file of measured peaks, shared by all programs of this host.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "contract/model_entry.h"
#include "contract/pool_info.h"

namespace llorch::pool {

inline constexpr std::size_t kMeasurementsMax = 1'000;

// Names one kind of load: the model's files, the backend, context, slots, cache type, and the
// version of our programs, which decides the rest.
std::string measurement_key(const contract::ModelEntry& model, std::string_view backend,
                            const contract::MemoryNeed& need);

// The peak kept under a key. Nothing when there is none, or no file that can be read: a plan does
// without.
std::optional<std::int64_t> find_measurement(const std::filesystem::path& file,
                                             std::string_view key);

// Adds or replaces; beyond kMeasurementsMax the oldest goes. Any number of processes at once.
Status keep_measurement(const std::filesystem::path& file, std::string_view key,
                        std::int64_t peak_bytes);

}  // namespace llorch::pool
