#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "fetch/choose_files.h"
#include "fetch/source.h"
#include "fetch/source_answers.h"
#include "fetch/source_providers.h"
#include "support/test_paths.h"

namespace llorch::fetch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<ListedFile> listing(const std::vector<std::string>& paths) {
  std::vector<ListedFile> files;
  for (const std::string& path : paths) files.push_back({path, 100});
  return files;
}

std::vector<std::string> choose(const std::vector<std::string>& paths,
                                std::string_view wanted = {}) {
  const Result<ChosenFiles> chosen = choose_files(listing(paths), wanted, "org/repo");
  if (!chosen.ok()) return {"error", chosen.error().message};
  std::vector<std::string> result;
  for (const ListedFile& file : chosen->files) {
    EXPECT_TRUE(file.path.starts_with(chosen->folder));
    result.push_back(file.path);
  }
  return result;
}

TEST(ChooseFiles, OneGgufByQuantisation) {
  const std::vector<std::string> repo = {"README.md",        "m.Q2_K.gguf",   "m.Q4_K_M.gguf",
                                         "m.Q4_K_S.gguf",    "m.IQ4_XS.gguf", "m-q8_0.gguf",
                                         "mmproj-Q8_0.gguf", "config.json"};
  EXPECT_THAT(choose(repo), ElementsAre("m.Q4_K_M.gguf"));
  EXPECT_THAT(choose(repo, "Q4_K_S"), ElementsAre("m.Q4_K_S.gguf"));
  EXPECT_THAT(choose(repo, "q8_0"), ElementsAre("m-q8_0.gguf"));
  EXPECT_THAT(choose(repo, "m.Q2_K.gguf"), ElementsAre("m.Q2_K.gguf"));
  EXPECT_THAT(choose(repo, "mmproj-Q8_0.gguf"), ElementsAre("mmproj-Q8_0.gguf"));
  // A part of a word is another word.
  EXPECT_THAT(choose(repo, "Q4_K")[1], HasSubstr("\"m.Q4_K_M.gguf\""));
  EXPECT_THAT(choose(repo, "Q4_XS")[0], "error");
}

TEST(ChooseFiles, WithoutTheUsualOneTheChoicesAreListed) {
  const auto answer = choose({"m.Q2_K.gguf", "m.Q8_0.gguf"});
  EXPECT_EQ(answer[0], "error");
  EXPECT_THAT(answer[1], HasSubstr("\"m.Q2_K.gguf\", \"m.Q8_0.gguf\""));
  EXPECT_THAT(choose({"a.Q4_K_M.gguf", "b.Q4_K_M.gguf"}, "Q4_K_M")[1], HasSubstr("several"));
  EXPECT_THAT(choose({"only.Q2_K.gguf"}), ElementsAre("only.Q2_K.gguf"));
}

TEST(ChooseFiles, PartsOfASplitGgufComeTogether) {
  const std::vector<std::string> repo = {
      "Q8_0/m-Q8_0-00001-of-00003.gguf", "Q8_0/m-Q8_0-00002-of-00003.gguf",
      "Q8_0/m-Q8_0-00003-of-00003.gguf", "Q4_0/m-Q4_0-00001-of-00002.gguf",
      "Q4_0/m-Q4_0-00002-of-00002.gguf"};
  EXPECT_EQ(choose(repo, "Q8_0").size(), 3U);
  EXPECT_EQ(choose(repo, "Q4_0/m-Q4_0-00002-of-00002.gguf").size(), 2U);
  const Result<ChosenFiles> chosen = choose_files(listing(repo), "Q4_0", "r");
  EXPECT_EQ(chosen->folder, "Q4_0/");
}

TEST(ChooseFiles, SafeTensorsWithWhatTheyNeedAndNoMore) {
  EXPECT_THAT(
      choose({".gitattributes", "README.md", "config.json", "consolidated.safetensors",
              "flax_model.msgpack", "merges.txt", "model-00001-of-00002.safetensors",
              "model-00002-of-00002.safetensors", "model.safetensors.index.json", "onnx/model.onnx",
              "onnx/config.json", "original/consolidated.00.pth", "pytorch_model.bin",
              "pytorch_model.bin.index.json", "tf_model.h5", "tokenizer.json", "tokenizer.model"}),
      ElementsAre("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                  "config.json", "merges.txt", "model.safetensors.index.json", "tokenizer.json",
                  "tokenizer.model"));
}

TEST(ChooseFiles, PyTorchOnlyWhereThereIsNothingBetter) {
  const std::vector<std::string> repo = {"config.json", "optimizer.bin", "pytorch_model.bin",
                                         "pytorch_model.bin.index.json", "training_args.bin"};
  EXPECT_THAT(choose(repo),
              ElementsAre("pytorch_model.bin", "config.json", "pytorch_model.bin.index.json"));
  EXPECT_THAT(choose({"README.md", "model.onnx"})[1], HasSubstr("no GGUF, SafeTensors or PyTorch"));
  EXPECT_THAT(choose({"config.json", "adapter_model.safetensors"})[0], "error");
}

TEST(ChooseFiles, WeightsInAFolderComeWithThatFoldersFiles) {
  EXPECT_THAT(choose({"package.json", "index.js", "model/config.json", "model/model.safetensors",
                      "model/tokenizer.json"}),
              ElementsAre("model/model.safetensors", "model/config.json", "model/tokenizer.json"));
  EXPECT_THAT(choose({"a/model.safetensors", "b/model.safetensors"})[1],
              HasSubstr("several models"));
  EXPECT_THAT(choose({"x.fp16.safetensors", "config.json"}),
              ElementsAre("x.fp16.safetensors", "config.json"));
}

TEST(HubInfo, ReadsCommitLicenceAndGate) {
  const std::string commit(40, 'a');
  const auto info = parse_hub_info("{\"sha\":\"" + commit +
                                   "\",\"gated\":\"auto\",\"cardData\":{\"license\":\"mit\"}}");
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->commit, commit);
  EXPECT_EQ(info->license, "mit");
  EXPECT_TRUE(info->gated);
  const auto other = parse_hub_info("{\"sha\":\"" + commit +
                                    "\",\"gated\":false,\"tags\":[\"x\",\"license:apache-2.0\"]}");
  EXPECT_EQ(other->license, "apache-2.0");
  EXPECT_FALSE(other->gated);
  for (const std::string bad : {"", "[]", "{}", "{\"sha\":\"../../etc\"}", "{\"sha\":3}"})
    EXPECT_EQ(parse_hub_info(bad).error().code, ErrorCode::Corrupt) << bad;
}

TEST(HubTree, TrustsNothing) {
  const std::string hash(64, 'b');
  const std::string blob(40, 'c');
  const auto entry = [](const std::string& path, const std::string& rest) {
    return "{\"type\":\"file\",\"path\":\"" + path + "\"," + rest + "}";
  };
  const auto tree = parse_hub_tree(
      "[{\"type\":\"directory\",\"path\":\"d\"}," +
      entry("a.gguf", "\"size\":1,\"oid\":\"x\",\"lfs\":{\"oid\":\"" + hash + "\",\"size\":7}") +
      "," + entry("c.json", "\"size\":2,\"oid\":\"" + blob + "\"") + "," +
      entry("../evil", "\"size\":2,\"oid\":\"" + blob + "\"") + "]");
  ASSERT_TRUE(tree.ok()) << tree.error().message;
  EXPECT_THAT(*tree,
              ElementsAre(ListedFile{"a.gguf", 7, hash, ""}, ListedFile{"c.json", 2, "", blob}));
  for (const std::string& bad :
       {std::string("{}"), std::string("[1]"), "[" + entry("a", "\"size\":1,\"oid\":\"zz\"") + "]",
        "[" + entry("a", "\"size\":-1,\"oid\":\"" + blob + "\"") + "]",
        "[" + entry("a", "\"size\":1,\"lfs\":{\"oid\":\"" + blob + "\",\"size\":1}") + "]"})
    EXPECT_FALSE(parse_hub_tree(bad).ok()) << bad;
}

TEST(NextLink, FindsTheNextPage) {
  EXPECT_EQ(next_link("<https://a/b?x=1>; rel=\"next\""), "https://a/b?x=1");
  EXPECT_EQ(next_link("<https://p>; rel=\"prev\", <https://n>; rel=\"next\""), "https://n");
  EXPECT_EQ(next_link("<https://p>; rel=\"prev\""), "");
  for (const char* none : {"", "x", "<", ">", "<x", "><"}) EXPECT_EQ(next_link(none), "") << none;
}

TEST(NpmPackage, FindsVersionsAndTags) {
  const std::string text = R"({"dist-tags":{"latest":"2.0.0","old":"1.0.0"},"versions":{
    "1.0.0":{"license":"MIT","dist":{"tarball":"https://r/1.tgz","integrity":"sha1-x sha512-one"}},
    "2.0.0":{"dist":{"tarball":"https://r/2.tgz","integrity":"sha512-two"}},
    "3.0.0":{"dist":{"tarball":"https://r/3.tgz","shasum":"abc"}}}})";
  EXPECT_EQ(parse_npm_package(text, "")->tarball, "https://r/2.tgz");
  EXPECT_EQ(parse_npm_package(text, "old")->integrity, "sha512-one");
  EXPECT_EQ(parse_npm_package(text, "1.0.0")->license, "MIT");
  EXPECT_EQ(parse_npm_package(text, "9").error().code, ErrorCode::NotFound);
  EXPECT_EQ(parse_npm_package(text, "3.0.0").error().code, ErrorCode::Unsupported);
  EXPECT_EQ(parse_npm_package("{}", "").error().code, ErrorCode::Corrupt);
}

SourceOptions options_from(const std::map<std::string, std::string>& variables) {
  return source_options([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(SourceOptions, ComeFromTheEnvironment) {
  const test::TempDir dir;
  const SourceOptions nothing = options_from({});
  EXPECT_EQ(nothing.hf_endpoint, "https://huggingface.co");
  EXPECT_EQ(nothing.hf_token, "");
  EXPECT_TRUE(nothing.npm_program.empty());
  std::filesystem::create_directories(dir / ".cache/huggingface");
  std::ofstream(dir / ".cache/huggingface/token") << "hf_file\n";
  EXPECT_EQ(options_from({{"HOME", dir.path()}}).hf_token, "hf_file");
  const SourceOptions all = options_from({{"HOME", dir.path()},
                                          {"HF_TOKEN", "hf_variable"},
                                          {"HF_ENDPOINT", "https://mirror/"},
                                          {"SSL_CERT_FILE", "/ca.pem"},
                                          {"PATH", "relative:/bin"}});
  EXPECT_EQ(all.hf_token, "hf_variable");
  EXPECT_EQ(all.hf_endpoint, "https://mirror");
  EXPECT_EQ(all.ca_file, "/ca.pem");
}

TEST(CaFile, IsFoundWhereTheDistributionKeepsIt) {
  const test::TempDir dir;
  EXPECT_EQ(find_ca_file(dir.path()), "");
  for (const char* place :
       {"etc/pki/tls/certs/ca-bundle.crt", "etc/ssl/certs/ca-certificates.crt"}) {
    std::filesystem::create_directories((dir / place).parent_path());
    std::ofstream(dir / place) << "x";
    EXPECT_EQ(find_ca_file(dir.path()), (dir / place).string());
  }
}

TEST(PrivateWay, IsHttpsOrThisHost) {
  for (const char* url : {"https://a.example/x", "http://127.0.0.1:8080/x", "http://localhost/x",
                          "http://[::1]:9/x", "HTTP://LOCALHOST:1/"})
    EXPECT_TRUE(is_private_way(url)) << url;
  // Short for 127.0.0.1, which is what libcurl makes of it before it asks.
  EXPECT_TRUE(is_private_way("http://127.1/"));
  for (const char* url : {"http://a.example/x", "http://127.example.org/x", "http://10.0.0.1/x",
                          "http://127.999.0.1/", "http://127.0.0.1.2/", "http://127.../",
                          "http://localhost.example.org/", "ftp://127.0.0.1/", ""})
    EXPECT_FALSE(is_private_way(url)) << url;
}

}  // namespace
}  // namespace llorch::fetch
