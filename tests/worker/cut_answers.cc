#include "worker/cut_answers.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "http/client.h"
#include "http/sse.h"

namespace llorch::test {

const char* const kCutTemplate =
    "{%- for message in messages -%}"
    "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{%- endfor -%}"
    "<|im_start|>assistant\n"
    "{%- if enable_thinking -%}<think>\n{%- endif -%}"
    "{#- a thought ends with </think> -#}";

namespace {

using Ids = std::vector<std::int32_t>;

// What leaves together or not at all.
struct Step {
  std::size_t choice = 0;
  Ids ids;
  std::vector<std::string> events;  // without what differs from answer to answer
  std::string text;                 // of /execute
  bool is_last = false;             // of its choice
};

struct Stream {
  std::vector<Step> steps;
  std::vector<std::string> rest;  // of all choices: usage, [DONE]
};

Ids ids_in(const json::Value* value) {
  Ids ids;
  if (value == nullptr) return ids;
  for (const json::Value& id : value->get_array())
    ids.push_back(static_cast<std::int32_t>(id.get_int64()));
  return ids;
}

class StreamReader {
 public:
  Stream take(const std::vector<http::SseEvent>& events) {
    for (const http::SseEvent& event : events) {
      if (event.event == "message") {  // of no name
        take_chunk(event.data);
      } else {
        take_event(event);
      }
    }
    EXPECT_TRUE(step_.events.empty()) << "events that nothing followed";
    return std::move(stream_);
  }

 private:
  void close(std::size_t choice, Ids ids, bool is_last) {
    step_.choice = choice;
    step_.ids = std::move(ids);
    step_.is_last = is_last;
    stream_.steps.push_back(std::exchange(step_, {}));
  }

  void take_event(const http::SseEvent& event) {
    ASSERT_NE(event.event, "error") << event.data;
    if (event.event == "started") return;
    json::Object data = json::parse(event.data).take().get_object();
    Ids ids = ids_in(data.if_contains("ids"));
    if (event.event == "end") {
      for (const char* time : {"decode_time_ms", "prefill_ms", "ttft_ms"}) data.erase(time);
    } else {
      step_.text += json::view(data.at("t").get_string());
    }
    step_.events.push_back(event.event + " " + json::serialize(data));
    if (!ids.empty() || event.event == "end") close(0, std::move(ids), event.event == "end");
  }

  void take_chunk(const std::string& text) {
    if (text == "[DONE]") {
      stream_.rest.push_back(text);
      return;
    }
    json::Object data = json::parse(text).take().get_object();
    ASSERT_FALSE(data.contains("error")) << text;
    data.erase("id");
    data.erase("created");
    const json::Array& choices = data.at("choices").get_array();
    if (choices.empty()) {
      data.at("usage").get_object().erase("prompt_tokens_details");
      stream_.rest.push_back(json::serialize(data));
      return;
    }
    const auto choice = static_cast<std::size_t>(choices[0].at("index").get_int64());
    const bool is_last = !choices[0].at("finish_reason").is_null();
    const json::Value* ours = data.if_contains("llorch");
    EXPECT_TRUE(ours == nullptr || text.ends_with("]}}")) << text;
    step_.events.push_back(json::serialize(data));
    if (ours != nullptr || is_last)
      close(choice, ours == nullptr ? Ids() : ids_in(&ours->at("ids")), is_last);
  }

  Stream stream_;
  Step step_;
};

Stream ask(const std::string& url, const std::string& path, const json::Object& body) {
  http::ClientRequest request(http::Method::Post, url + path);
  request.headers.set("Content-Type", "application/json");
  request.headers.set("X-Llorch-Ids", "1");
  request.body = json::serialize(body);
  http::Client client;
  const Result<http::Response> response = client.send(request);
  EXPECT_TRUE(response.ok() && response->status == 200)
      << (response.ok() ? response->body : response.error().message) << request.body;
  if (!response.ok()) return {};
  http::SseReader reader;
  std::vector<http::SseEvent> events;
  EXPECT_TRUE(reader.feed(response->body, events).ok());
  return StreamReader().take(events);
}

json::Array to_json(const Ids& ids) {
  json::Array array(ids.begin(), ids.end());
  return array;
}

json::Object resumed(const CutCase& one, const std::vector<Ids>& told) {
  json::Object body = one.body;
  if (one.path == "/execute") {
    body["job_id"] = fmt::format("{}.again", json::view(body.at("job_id").get_string()));
    body["resume"] = json::Object{{"ids", to_json(told[0])}};
    return body;
  }
  json::Array lists;
  for (const Ids& ids : told) lists.push_back(to_json(ids));
  body["llorch"] = json::Object{{"resume_ids", std::move(lists)}};
  return body;
}

std::string text_of(const Stream& stream) {
  std::string text;
  for (const Step& step : stream.steps) text += step.text;
  return text;
}

// Behind each step: all that was told, and what comes then.
void check_border(const CutCase& one, const Stream& whole, std::size_t num_steps,
                  const std::string& second) {
  SCOPED_TRACE(
      fmt::format("{}, cut after {} of {} steps", one.name, num_steps, whole.steps.size()));
  std::vector<Ids> told(one.choices);
  std::vector<std::vector<std::string>> expected(one.choices);
  std::vector<std::vector<std::string>> got(one.choices);
  std::vector<bool> is_over(one.choices);
  for (std::size_t i = 0; i < whole.steps.size(); ++i) {
    const Step& step = whole.steps[i];
    auto& events = expected[step.choice];
    events.insert(events.end(), step.events.begin(), step.events.end());
    if (i >= num_steps) continue;
    told[step.choice].insert(told[step.choice].end(), step.ids.begin(), step.ids.end());
    got[step.choice] = events;
    is_over[step.choice] = step.is_last;
  }
  const Stream rest = ask(second, one.path, resumed(one, told));
  for (const Step& step : rest.steps) {
    // What has ended may end again; nobody listens.
    if (is_over[step.choice]) continue;
    got[step.choice].insert(got[step.choice].end(), step.events.begin(), step.events.end());
  }
  EXPECT_EQ(got, expected);
  EXPECT_EQ(rest.rest, whole.rest);
}

// Between the ids of a step, too: its text comes as a whole.
void check_between(const CutCase& one, const Stream& whole, const std::string& second,
                   std::size_t& cuts) {
  Ids all;
  std::string before;
  for (const Step& step : whole.steps) {
    for (std::size_t i = 0; i + 1 < step.ids.size(); ++i) {
      Ids told = all;
      told.insert(told.end(), step.ids.begin(),
                  step.ids.begin() + static_cast<std::ptrdiff_t>(i + 1));
      const Stream rest = ask(second, one.path, resumed(one, {told}));
      EXPECT_EQ(before + text_of(rest), text_of(whole)) << one.name << " at id " << told.size();
      for (const Step& more : rest.steps) told.insert(told.end(), more.ids.begin(), more.ids.end());
      Ids expected;
      for (const Step& each : whole.steps)
        expected.insert(expected.end(), each.ids.begin(), each.ids.end());
      EXPECT_EQ(told, expected) << one.name;
      ++cuts;
    }
    all.insert(all.end(), step.ids.begin(), step.ids.end());
    before += step.text;
  }
}

CutCase execute(std::string name, json::Object more) {
  json::Object body{
      {"job_id", name}, {"prompt", "Once upon a time"}, {"seed", 11}, {"max_tokens", 12}};
  for (const auto& field : more) body[field.key()] = field.value();
  return {std::move(name), "/execute", std::move(body)};
}

CutCase completion(std::string name, json::Object more, std::size_t choices = 1) {
  json::Object body{{"prompt", "The little dog"},
                    {"seed", 23},
                    {"max_tokens", 8},
                    {"stream", true},
                    {"n", choices},
                    {"temperature", 0.9}};
  for (const auto& field : more) body[field.key()] = field.value();
  return {std::move(name), "/v1/completions", std::move(body), choices};
}

CutCase chat(std::string name, json::Object more, std::size_t choices = 1) {
  json::Array messages{json::Object{{"role", "user"}, {"content", "Tell me of a cat."}}};
  json::Object body{{"messages", std::move(messages)},
                    {"seed", 5},
                    {"max_tokens", 10},
                    {"stream", true},
                    {"n", choices},
                    {"stream_options", json::Object{{"include_usage", true}}}};
  for (const auto& field : more) body[field.key()] = field.value();
  return {std::move(name), "/v1/chat/completions", std::move(body), choices};
}

json::Object parsed(std::string_view text) {
  return json::parse(text).take().get_object();
}

}  // namespace

std::vector<CutCase> cut_cases(const std::string& url) {
  // Stop strings of this model's own text: one that comes, across tokens; and one that has begun
  // when the answer ends.
  const std::string story = text_of(ask(url, "/execute", execute("story", {}).body));
  EXPECT_GT(story.size(), 16U);
  const std::string comes = story.substr(story.size() / 2, 7);
  const std::string never = story.substr(story.size() - 2) + "\x01";
  const json::Object schema = parsed(
      R"({"response_format":{"type":"json_schema","json_schema":{"name":"s","schema":{"type":"object",
          "properties":{"n":{"type":"integer"},"s":{"type":"string","maxLength":6}},"required":["n","s"],
          "additionalProperties":false}}},"max_tokens":28})");
  const json::Object tool = parsed(
      R"({"tools":[{"type":"function","function":{"name":"look","parameters":{"type":"object",
          "properties":{"at":{"type":"string","maxLength":5}},"required":["at"],"additionalProperties":false}}}],
          "tool_choice":"required","parallel_tool_calls":false,"max_tokens":40})");
  return {
      execute("greedy", {{"temperature", 0}}),
      execute("seeded", {}),
      execute("stop", {{"stop", json::Array{comes}}}),
      execute("tail", {{"stop", json::Array{never}}}),
      execute("penalties", {{"repetition_penalty", 1.3}, {"top_k", 20}}),
      completion("completion", {}),
      completion("greedy completion", {{"temperature", 0}, {"echo", true}}),
      completion("completion's logprobs", {{"logprobs", 2}, {"stop", json::Array{comes}}}),
      completion("n = 3", {}, 3),
      chat("chat", {}),
      chat("n = 3 in a chat", {{"stop", json::Array{"a", "e "}}}, 3),
      chat("chat's logprobs", {{"logprobs", true}, {"top_logprobs", 1}}),
      chat("schema", schema),
      chat("tool call", tool),
      chat("thinking", {{"chat_template_kwargs", json::Object{{"enable_thinking", true}}}}),
  };
}

std::size_t check_cuts(const CutCase& one, const std::string& first, const std::string& second) {
  const Stream whole = ask(first, one.path, one.body);
  EXPECT_GT(whole.steps.size(), one.choices) << one.name;
  std::size_t cuts = 0;
  for (; cuts <= whole.steps.size(); ++cuts) check_border(one, whole, cuts, second);
  if (one.path == "/execute") check_between(one, whole, second, cuts);
  return cuts;
}

}  // namespace llorch::test
