// A conversation: its messages, its settings, and the commands that change them. Asks nobody and
// prints nothing. Private to cli/.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "contract/sampling_config.h"
#include "pool_client/ask_worker.h"

namespace llorch::cli {

using pool_client::ChatMessage;

class ChatSession {
 public:
  ChatSession(std::string system, contract::SamplingConfig sampling);

  // What a line that begins with '/' asks for.
  struct Effect {
    enum class Kind : std::uint8_t { Text, Ask, Exit };
    Kind kind = Kind::Text;
    std::string text;  // for the person; may be empty
  };
  // InvalidArgument says what is wrong, with the nearest command.
  Result<Effect> run_command(std::string_view line);

  void add_user(std::string text) { messages_.push_back({"user", std::move(text)}); }
  void add_answer(std::string text) { messages_.push_back({"assistant", std::move(text)}); }
  // Takes the last question back: it could not be answered.
  void drop_question();

  // Everything that the model is to see, the system's text first.
  std::vector<ChatMessage> messages() const;
  const contract::SamplingConfig& sampling() const { return sampling_; }

 private:
  Effect text(std::string message) const { return {Effect::Kind::Text, std::move(message)}; }
  Result<Effect> set(std::string_view arguments);
  Result<Effect> save(const std::filesystem::path& file) const;
  Result<Effect> load(const std::filesystem::path& file);
  Result<Effect> regenerate();

  std::string system_;
  contract::SamplingConfig sampling_;
  std::vector<ChatMessage> messages_;  // user and assistant in turn
};

}  // namespace llorch::cli
