// The names of things in the fleet: jobs, attempts, keys, models, boots, and their text on the
// wire.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace llorch::fleet {

// 128 bits. Those of a job are drawn at random by whoever receives it; those of a model are the
// first half of the SHA-256 of its weights.
template <class Tag>
struct Id128 {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  friend auto operator<=>(const Id128&, const Id128&) = default;
};
using JobId = Id128<struct JobTag>;
using ModelHash = Id128<struct ModelTag>;

std::string text(const JobId& id);  // 32 hex digits
std::optional<JobId> job_id_from_text(std::string_view text);
std::string text(const ModelHash& hash);
std::optional<ModelHash> model_hash_from_text(std::string_view text);

template <class Tag>
struct Id128Hash {
  std::size_t operator()(const Id128<Tag>& id) const {
    return static_cast<std::size_t>(id.low ^ (id.high * 0x9e3779b97f4a7c15U));
  }
};
using JobIdHash = Id128Hash<JobTag>;
using ModelHashHash = Id128Hash<ModelTag>;

// The id inside a key, llk_<id>_<secret>. 0: no key was asked for (loopback).
struct KeyId {
  std::uint64_t value = 0;

  friend auto operator<=>(const KeyId&, const KeyId&) = default;
};
struct KeyIdHash {
  std::size_t operator()(KeyId key) const { return std::hash<std::uint64_t>()(key.value); }
};
std::string text(KeyId key);  // 16 hex digits
std::optional<KeyId> key_id_from_text(std::string_view text);

// How often an orchestrator has started on this store; raised durably before anything else.
using Boot = std::uint64_t;

// One try of a job on one worker. Its text is the worker's job_id. The number needs no sync: the
// boot makes it unique, so a late answer from before a crash matches nothing.
struct AttemptId {
  JobId job;
  Boot boot = 0;
  std::uint32_t number = 0;  // from 1; 0: none

  friend auto operator<=>(const AttemptId&, const AttemptId&) = default;
};
std::string text(const AttemptId& attempt);  // "<job>.<boot>.<number>"

// How far an answer has been told: ids so far, for each choice. It means the same after a restart.
inline constexpr std::size_t kChoicesMax = 128;
struct Position {
  std::vector<std::uint32_t> told;  // empty: nothing yet

  std::uint64_t total() const;
  // At least as far in every choice.
  bool covers(const Position& other) const;
  friend bool operator==(const Position& a, const Position& b) {
    return a.covers(b) && b.covers(a);
  }
};
std::string text(const Position& position);  // "12", "12.9.30"; "0" for nothing
std::optional<Position> position_from_text(std::string_view text);

}  // namespace llorch::fleet
