#include "formats/pickle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace llorch::formats {
namespace {

using ::testing::HasSubstr;
using Kind = PickleValue::Kind;

Result<Pickle> read(std::string_view bytes) {
  return read_pickle(std::as_bytes(std::span(bytes)));
}

// The pickle of one value: protocol 2, the opcodes, STOP. Text literals may hold zero bytes.
template <std::size_t N>
std::string pickle_of(const char (&opcodes)[N]) {
  return std::string("\x80\x02") + std::string(opcodes, N - 1) + ".";
}

std::string message_of(const std::string& bytes) {
  const Result<Pickle> pickle = read(bytes);
  return pickle.ok() ? "accepted" : pickle.error().message;
}

TEST(Pickle, ReadsScalars) {
  const std::string bytes = pickle_of(
      "(N\x88\x89K\xffM\xff\xffJ\xfe\xff\xff\xff\x8a\x00\x8a\x01\x80\x8a\x09"
      "123456789G\x3f\xf8\x00\x00\x00\x00\x00\x00X\x02\x00\x00\x00hit");
  const Result<Pickle> pickle = read(bytes);
  ASSERT_TRUE(pickle.ok()) << pickle.error().message;
  const PickleValue& root = (*pickle)[pickle->root];
  ASSERT_EQ(root.kind, Kind::Tuple);
  ASSERT_EQ(root.items.size(), 11U);
  const auto item = [&](std::size_t i) -> const PickleValue& { return (*pickle)[root.items[i]]; };
  EXPECT_EQ(item(0).kind, Kind::None);
  EXPECT_EQ(item(1).kind, Kind::Bool);
  EXPECT_EQ(item(1).integer, 1);
  EXPECT_EQ(item(2).integer, 0);
  EXPECT_EQ(item(3).integer, 255);
  EXPECT_EQ(item(4).integer, 65535);
  EXPECT_EQ(item(5).integer, -2);
  EXPECT_EQ(item(6).integer, 0);
  EXPECT_EQ(item(7).integer, -128);
  EXPECT_EQ(item(8).kind, Kind::Bytes) << "an integer beyond 64 bits";
  EXPECT_EQ(item(9).number, 1.5);
  EXPECT_EQ(item(10).text, "hi");
}

TEST(Pickle, BuildsContainersAndSharesThroughTheMemo) {
  // {"a": [1, 2], "b": the same list}, the list being filled after it was shared.
  const std::string bytes = pickle_of(
      "}(X\x01\x00\x00\x00"
      "a]q\x00(K\x01K\x02"
      "eX\x01\x00\x00\x00"
      "bh\x00u");
  const Result<Pickle> pickle = read(bytes);
  ASSERT_TRUE(pickle.ok()) << pickle.error().message;
  const PickleValue& root = (*pickle)[pickle->root];
  ASSERT_EQ(root.kind, Kind::Dict);
  ASSERT_EQ(root.items.size(), 4U);
  EXPECT_EQ(root.items[1], root.items[3]);
  EXPECT_EQ((*pickle)[root.items[1]].items.size(), 2U);
}

TEST(Pickle, NeverRunsAnythingButRecordsAllowedCalls) {
  const std::string bytes = pickle_of("ctorch\nSize\n(K\x02K\x03t\x85R");
  const Result<Pickle> pickle = read(bytes);
  ASSERT_TRUE(pickle.ok()) << pickle.error().message;
  const PickleValue& root = (*pickle)[pickle->root];
  ASSERT_EQ(root.kind, Kind::Call);
  EXPECT_EQ((*pickle)[root.items[0]].text, "torch.Size");
  EXPECT_EQ((*pickle)[root.items[1]].kind, Kind::Tuple);
}

TEST(Pickle, RefusesEveryOtherNameAndTellsIt) {
  for (const auto& [opcodes, wanted] :
       {std::pair{std::string("cos\nsystem\n"), "\"os.system\""},
        std::pair{std::string("c__builtin__\neval\n"), "\"__builtin__.eval\""},
        std::pair{std::string("ctorch\nload\n"), "\"torch.load\""},
        std::pair{std::string("ctorch\nFloatStorage.x\n"), "refused"},
        std::pair{std::string("c\n\n"), "refused"}}) {
    const Result<Pickle> pickle = read("\x80\x02" + opcodes + ".");
    ASSERT_FALSE(pickle.ok()) << opcodes;
    EXPECT_EQ(pickle.error().code, ErrorCode::Forbidden);
    EXPECT_THAT(pickle.error().message, HasSubstr(wanted));
  }
}

TEST(Pickle, RefusesMalformedPickles) {
  EXPECT_THAT(message_of(""), HasSubstr("without STOP"));
  EXPECT_THAT(message_of("N."), HasSubstr("protocol"));
  EXPECT_THAT(message_of("\x80\x01N."), HasSubstr("protocol 1"));
  EXPECT_THAT(message_of("\x80\x06N."), HasSubstr("protocol 6"));
  EXPECT_THAT(message_of(pickle_of("")), HasSubstr("0 values on the stack"));
  EXPECT_THAT(message_of(pickle_of("NN")), HasSubstr("2 values on the stack"));
  EXPECT_THAT(message_of(pickle_of("N(")), HasSubstr("expected one"));
  EXPECT_THAT(message_of(pickle_of("N.")), HasSubstr("1 bytes behind STOP"));
  EXPECT_THAT(message_of(pickle_of("t")), HasSubstr("no mark"));
  EXPECT_THAT(message_of(pickle_of("}(Nu")), HasSubstr("key without a value"));
  EXPECT_THAT(message_of(pickle_of("](NNu")), HasSubstr("adds to a list"));
  EXPECT_THAT(message_of(pickle_of("N(\x86")), HasSubstr("too few"));
  EXPECT_THAT(message_of(pickle_of("h\x07")), HasSubstr("memo slot 7 is empty"));
  EXPECT_THAT(message_of(pickle_of("Nr\xff\xff\xff\xff")), HasSubstr("memo slot 4294967295"));
  EXPECT_THAT(message_of(pickle_of("X\xff\xff\xff\x7f")), HasSubstr("cut short"));
  EXPECT_THAT(message_of(pickle_of("X\x01\x00\x00\x00\xff")), HasSubstr("UTF-8"));
  EXPECT_THAT(message_of(pickle_of("Nb")), HasSubstr("too few"));
  EXPECT_THAT(message_of(pickle_of("N}b")), HasSubstr("state of a None"));
  EXPECT_THAT(message_of(pickle_of("I1\n")), HasSubstr("opcode 0x49"));
  EXPECT_THAT(message_of(pickle_of("\x82\x01")), HasSubstr("opcode 0x82"));
}

TEST(Pickle, BoundsTheNumberOfValues) {
  const std::string bytes = "\x80\x02(" + std::string(kPickleValuesMax + 1, 'N') + "t.";
  EXPECT_THAT(message_of(bytes), HasSubstr("more than"));
  const std::string marks = "\x80\x02" + std::string(kPickleValuesMax + 1, '(') + ".";
  EXPECT_THAT(message_of(marks), HasSubstr("more than"));
}

TEST(Pickle, KeepsSharedTuplesShared) {
  // Forty tuples, each holding the one before twice: 2^40 leaves when expanded.
  std::string bytes = std::string("\x80\x02N", 3);
  for (int i = 0; i < 40; ++i) bytes += "2\x86";
  const Result<Pickle> pickle = read(bytes + ".");
  ASSERT_TRUE(pickle.ok()) << pickle.error().message;
  EXPECT_EQ(pickle->values.size(), 41U);
}

}  // namespace
}  // namespace llorch::formats
