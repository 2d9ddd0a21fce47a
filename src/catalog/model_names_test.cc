#include "catalog/model_names.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "contract/model_entry.h"

namespace llorch::catalog {
namespace {

const std::string kCommit = "0123456789abcdef0123456789abcdef01234567";

fetch::ModelRef ref_of(const std::string& text) {
  const Result<fetch::ModelRef> ref = fetch::parse_model_ref(text);
  EXPECT_TRUE(ref.ok()) << text;
  return ref.ok() ? *ref : fetch::ModelRef{};
}

TEST(ModelNames, AReferenceSaysWhatItsModelIsCalled) {
  const std::map<std::string, std::string> ids = {
      {"hf:org/TinyLlama-Chat-GGUF::file=Q4_K_M", "tinyllama-chat-gguf-q4_k_m"},
      {"hf:org/TinyLlama-Chat-GGUF::file=sub/a.Q8_0.gguf", "tinyllama-chat-gguf-a.q8_0"},
      {"hf:org/repo@" + kCommit, "repo"},
      {"hf:Qwen/Qwen2.5-0.5B", "qwen2.5-0.5b"},
      {"npm:@scope/package@1.2.3", "package"},
      {"https://example.org/a/my%20model.Q4_0.gguf?sig=x", "my-model.q4_0"},
      {"https://hub.example/org/repo/resolve/" + kCommit + "/model.safetensors", "repo"},
      {"https://hub.example/org/repo/resolve/main/pytorch_model.bin", "repo"},
      {"https://hub.example/org/repo/resolve/" + kCommit + "/tiny.Q4_0.gguf", "tiny.q4_0"},
      {"https://cdn.example/blobs/sha256-" + kCommit, "cdn.example"},
      {"file:/home/me/phi/model.gguf", "phi"},
      {"file:/hub/models--org--Some-Repo/snapshots/" + kCommit, "some-repo"},
      {"file:/hub/models--org--Some-Repo/snapshots/" + kCommit + "/x.gguf", "x"},
      {"file:/" + kCommit, "model"},
  };
  for (const auto& [text, id] : ids) {
    EXPECT_EQ(derive_model_id(ref_of(text)), id) << text;
    EXPECT_TRUE(contract::is_model_id(derive_model_id(ref_of(text))));
  }
  EXPECT_EQ(derive_model_name(ref_of("hf:Qwen/Qwen2.5-0.5B@" + kCommit)), "Qwen2.5-0.5B");
}

TEST(ModelNames, AnIdIsAlwaysOne) {
  for (const std::string& text :
       std::vector<std::string>{"", "---", "../..", "äöü", "_x", "a b", std::string(500, 'x')})
    EXPECT_TRUE(contract::is_model_id(make_model_id(text))) << text << " " << make_model_id(text);
}

TEST(ModelNames, NoSourceTakesAnothersId) {
  std::map<std::string, std::string> taken;
  const FindOccupant occupant = [&](const std::string& id) -> std::optional<std::string> {
    const auto found = taken.find(id);
    return found == taken.end() ? std::nullopt : std::optional(found->second);
  };
  const auto choose = [&](const std::string& text) {
    std::string id = choose_model_id(ref_of(text), occupant);
    taken.emplace(id, text);
    return id;
  };
  EXPECT_EQ(choose("hf:org/repo"), "repo");
  EXPECT_EQ(choose("hf:org/repo@v2"), "repo") << "another revision is the same model";
  EXPECT_EQ(choose("hf:org2/repo"), "org2-repo");
  EXPECT_EQ(choose("hf:org2/repo"), "org2-repo");
  EXPECT_EQ(choose("npm:@org2/repo"), "org2-repo-2");
  EXPECT_EQ(choose("npm:@org2/repo"), "org2-repo-2");
  EXPECT_EQ(choose("https://a.example/x/repo.gguf"), "x-repo");
  EXPECT_EQ(choose("https://b.example/x/repo.gguf"), "x-repo-2");
  EXPECT_EQ(choose("https://c.example/x/repo.gguf"), "x-repo-3");
  taken.erase("repo");
  EXPECT_EQ(choose("hf:org2/repo"), "org2-repo") << "what is here is found again";
  taken["other"] = "";  // registered in place
  EXPECT_EQ(choose("hf:org/other"), "org-other");
  taken["long"] = "what no reference can be";
  EXPECT_EQ(choose("hf:org/long"), "org-long");
}

TEST(ModelNames, KnownModelsAndTheBuiltInOneKeepTheirIds) {
  const CatalogContent content;
  base::Home home;
  home.data = "/nowhere";
  const FindOccupant occupant = find_occupants(content, home);
  EXPECT_TRUE(occupant("builtin").has_value());
  EXPECT_FALSE(occupant("no-such-model").has_value());
  EXPECT_EQ(choose_model_id(ref_of("hf:me/builtin"), occupant), "me-builtin");
}

}  // namespace
}  // namespace llorch::catalog
