#include "cli/chat_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "support/test_paths.h"

namespace llorch::cli {
namespace {

using ::testing::ElementsAre, ::testing::HasSubstr, ::testing::IsEmpty;
using Kind = ChatSession::Effect::Kind;

TEST(ChatSession, KeepsTheConversationInOrder) {
  ChatSession session("Be brief.", {});
  session.add_user("Hello");
  session.add_answer("Hi");
  session.add_user("Bye");
  EXPECT_THAT(session.messages(),
              ElementsAre(ChatMessage{"system", "Be brief."}, ChatMessage{"user", "Hello"},
                          ChatMessage{"assistant", "Hi"}, ChatMessage{"user", "Bye"}));
  session.drop_question();
  session.drop_question();
  EXPECT_EQ(session.messages().size(), 3U) << "an answer is not a question";
  EXPECT_EQ(session.run_command("/clear")->kind, Kind::Text);
  EXPECT_THAT(session.messages(), ElementsAre(ChatMessage{"system", "Be brief."}));
  EXPECT_TRUE(session.run_command("/system  Be long. ").ok());
  EXPECT_THAT(session.messages(), ElementsAre(ChatMessage{"system", "Be long."}));
  EXPECT_TRUE(session.run_command("/system").ok());
  EXPECT_THAT(session.messages(), IsEmpty());
}

TEST(ChatSession, RegenerateAsksTheLastMessageAgain) {
  ChatSession session("", {});
  EXPECT_FALSE(session.run_command("/regenerate").ok());
  session.add_user("Hello");
  session.add_answer("Hi");
  EXPECT_EQ(session.run_command("/regenerate")->kind, Kind::Ask);
  EXPECT_THAT(session.messages(), ElementsAre(ChatMessage{"user", "Hello"}));
}

TEST(ChatSession, SettingsHaveTheContractsRanges) {
  ChatSession session("", {});
  ASSERT_TRUE(session.run_command("/set temperature 0.25").ok());
  ASSERT_TRUE(session.run_command("/set top_k=5").ok());
  ASSERT_TRUE(session.run_command("/set seed 7").ok());
  EXPECT_EQ(session.sampling().temperature, 0.25F);
  EXPECT_EQ(session.sampling().top_k, 5);
  EXPECT_EQ(session.sampling().seed, 7U);
  EXPECT_THAT(session.run_command("/set")->text, HasSubstr("\"top_k\":5"));
  EXPECT_THAT(session.run_command("/set temprature 1").error().message,
              HasSubstr("did you mean temperature"));
  for (const char* wrong : {"/set temperature 3", "/set temperature", "/set temperature hot",
                            "/set top_p nan", "/set max_tokens 0", "/set seed -1"})
    EXPECT_FALSE(session.run_command(wrong).ok()) << wrong;
  EXPECT_EQ(session.sampling().temperature, 0.25F) << "a mistake changes nothing";
}

TEST(ChatSession, WhatWasSavedIsLoaded) {
  const test::TempDir folder;
  const std::string file = (folder / "talk.json").string();
  ChatSession session("Be brief.", {});
  session.add_user("Hello \"you\"\nthere");
  session.add_answer("Hi");
  ASSERT_TRUE(session.run_command("/save " + file).ok());
  ChatSession other("", {});
  const auto loaded = other.run_command("/load " + file);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ(other.messages(), session.messages());
  for (const char* broken :
       {"", "[]", "{}", R"({"messages":[1]})", R"({"messages":[{"role":"user"}]})",
        R"({"messages":[{"role":"tool","content":"x"}]})"}) {
    std::ofstream(folder / "talk.json") << broken;
    EXPECT_FALSE(other.run_command("/load " + file).ok()) << broken;
  }
  EXPECT_FALSE(other.run_command("/load " + (folder / "none").string()).ok());
  EXPECT_FALSE(other.run_command("/load").ok());
  EXPECT_EQ(other.messages(), session.messages()) << "a mistake changes nothing";
}

TEST(ChatSession, AnUnknownCommandIsNamedWithTheNearest) {
  ChatSession session("", {});
  EXPECT_THAT(session.run_command("/claer").error().message, HasSubstr("did you mean /clear?"));
  EXPECT_EQ(session.run_command("/exit")->kind, Kind::Exit);
  EXPECT_THAT(session.run_command("/help")->text, HasSubstr("/regenerate"));
}

}  // namespace
}  // namespace llorch::cli
