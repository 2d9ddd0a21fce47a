// What a model is called when nobody named it: its id in the catalog and its name for people.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/home.h"
#include "catalog/model_catalog.h"
#include "fetch/model_ref.h"

namespace llorch::catalog {

// Text as an id: lower case, '-' for what an id cannot hold; "model" when nothing is left.
std::string make_model_id(std::string_view text);

// Whether a folder's or a file's name can only be a commit or a hash.
bool is_hash_name(std::string_view text);

// The last part of a path that says something: never a commit, a hash or a folder that every cache
// has ("snapshots", "resolve", "main"). "…/models--org--repo/snapshots/<commit>" is "repo". "model"
// when no part does.
std::string telling_part(const std::filesystem::path& path);

// The name for people of what a reference means: the repository, the package, the file.
std::string derive_model_name(const fetch::ModelRef& ref);

// The id of a model that is fetched by its reference alone: that name and, where a file or a
// quantisation was named, that behind it. "hf:org/TinyLlama-Chat-GGUF::file=Q4_K_M" is
// "tinyllama-chat-gguf-q4_k_m".
std::string derive_model_id(const fetch::ModelRef& ref);

// Whether two references mean the same model, at whatever revision.
bool is_same_source(const fetch::ModelRef& a, const fetch::ModelRef& b);
// Whether they mean the same repository, package or address: other files of it, too.
bool is_same_place(std::string_view text, const fetch::ModelRef& ref);
// The same as the first for a reference as an entry or a file has it, which may be anything.
bool is_same_source(std::string_view text, const fetch::ModelRef& ref);

// The reference of what has an id now (empty: files that nobody fetched); nothing: the id is free.
using FindOccupant = std::function<std::optional<std::string>(const std::string& id)>;
// By the catalog, the known models, and downloads that are under way or were cut off.
FindOccupant find_occupants(const CatalogContent& content, const base::Home& home);

// derive_model_id, unless another source has it: then with its owner in front ("org2-repo"), then
// with a number behind. What the same source has already is found again.
std::string choose_model_id(const fetch::ModelRef& ref, const FindOccupant& occupant);

}  // namespace llorch::catalog
