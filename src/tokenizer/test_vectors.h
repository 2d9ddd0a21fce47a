// Tests only: texts and the ids that the Rust library gives them, one JSON object for each line.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "tokenizer/tokenizer.h"

namespace llorch::tokenizer {

struct TestVector {
  std::string text, decoded;
  std::vector<TokenId> ids, ids_with_special;
};

// With `only`, those whose "tokenizer" is that.
inline std::vector<TestVector> read_vectors(const std::filesystem::path& path,
                                            std::string_view only = "") {
  const auto ids_of = [](const json::Value& value) {
    std::vector<TokenId> ids;
    for (const json::Value& id : value.get_array())
      ids.push_back(static_cast<TokenId>(id.get_int64()));
    return ids;
  };
  std::vector<TestVector> vectors;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const json::Value value = json::parse(line).take();
    const json::Object& object = value.get_object();
    if (!only.empty() && json::view(object.at("tokenizer").get_string()) != only) continue;
    vectors.push_back({std::string(json::view(object.at("text").get_string())),
                       std::string(json::view(object.at("decoded").get_string())),
                       ids_of(object.at("ids")), ids_of(object.at("ids_with_special"))});
  }
  return vectors;
}

}  // namespace llorch::tokenizer
