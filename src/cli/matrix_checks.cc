#include "cli/matrix_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <fstream>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/file.h"
#include "base/mutex.h"
#include "base/process_table.h"
#include "base/terminal.h"
#include "base/thread.h"
#include "base/utf8.h"

namespace llorch::cli {
namespace {

constexpr std::array<std::string_view, 4> kStories = {
    "Once upon a time there was a", "1, 2, 3, 4, 5,", "The capital of France is",
    "Question: what is the capital of France?\nAnswer:"};
constexpr std::int32_t kStoryTokens = 24;
constexpr std::int32_t kOtherTokens = 12;
constexpr std::int64_t kCancelPromptMax = 4096;
constexpr std::uint64_t kCancelTries = 20;
constexpr std::int32_t kSoakTokens = 8;
constexpr int kSoakLanes = 4;
constexpr int kMemorySamples = 20;
constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr double kFlat = 0.02;
constexpr std::size_t kGoldenBytesMax = std::size_t{16} << 20;
constexpr std::chrono::milliseconds kReleasePatience{5'000};
constexpr std::chrono::milliseconds kTick{10};

std::string ids_text(const std::vector<std::int32_t>& ids) {
  std::string text;
  for (std::size_t i = 0; i < std::min<std::size_t>(ids.size(), 8); ++i)
    text += fmt::format("{}{}", i > 0 ? " " : "", ids[i]);
  return ids.size() > 8 ? text + " …" : text;
}

// How many ids in front are the same.
std::size_t common(const std::vector<std::int32_t>& a, const std::vector<std::int32_t>& b) {
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
                                  a.begin());
}

CheckResult differs(std::string_view what, const std::vector<std::int32_t>& expected,
                    const std::vector<std::int32_t>& found) {
  return failed(fmt::format("{}: expected {}, found {}; the first {} are the same", what,
                            ids_text(expected), ids_text(found), common(expected, found)));
}

// The same greedy answer again, as a proof that all is well after something rude.
CheckResult still_answers(Subject& subject, std::string seen) {
  const Result<Heard> again = subject.client.ask(subject.story, subject.stop);
  if (!again.ok()) return failed(seen + "; after that: " + again.error().message);
  if (again->ids != subject.greedy.ids)
    return differs(seen + "; after that", subject.greedy.ids, again->ids);
  return passed(std::move(seen));
}

CheckResult check_ids(Subject& subject, MatrixCell& cell) {
  const Result<Heard> first = subject.client.ask(subject.story, subject.stop);
  if (!first.ok()) return failed(first.error().message);
  if (first->ids.empty()) return failed("the answer has no ids");
  subject.greedy = *first;
  cell.ids = first->ids;
  const Result<Heard> second = subject.client.ask(subject.story, subject.stop);
  if (!second.ok()) return failed("again: " + second.error().message);
  if (second->ids != first->ids) return differs("again", first->ids, second->ids);
  std::vector<Asked> asks(4, subject.story);
  for (std::size_t i = 1; i < asks.size(); ++i) {
    asks[i].prompt = fmt::format("The number {} is", i);
    asks[i].temperature = 1;
    asks[i].seed = i;
  }
  const std::vector<TimedAnswer> together = ask_together(subject.client, asks, subject.stop);
  for (const TimedAnswer& timed : together)
    if (!timed.answer.ok()) return failed("among others: " + timed.answer.error().message);
  if (together[0].answer->ids != first->ids)
    return differs("among others", first->ids, together[0].answer->ids);
  return passed(fmt::format("{} greedy ids the same twice and among others: {}", first->ids.size(),
                            ids_text(first->ids)));
}

std::vector<std::int32_t> ids_in(const json::Object& object, std::string_view field) {
  std::vector<std::int32_t> ids;
  const json::Value* list = object.if_contains(field);
  if (list == nullptr || !list->is_array()) return ids;
  for (const json::Value& id : list->get_array())
    if (id.is_int64()) ids.push_back(static_cast<std::int32_t>(id.get_int64()));
  return ids;
}

// What transformers continues with: golden.json beside the weights has input_ids and greedy_ids,
// the second beginning with the first.
CheckResult check_golden(Subject& subject, MatrixCell&) {
  if (subject.files.empty()) return skipped(why_no_files(subject));
  std::error_code ignored;
  const bool is_folder = std::filesystem::is_directory(subject.files, ignored);
  const std::filesystem::path file =
      (is_folder ? subject.files : subject.files.parent_path()) / "golden.json";
  if (!is_folder || !std::filesystem::exists(file, ignored))
    return skipped("no golden.json beside the weights");
  const Result<std::string> text = base::read_text_file(file, kGoldenBytesMax);
  if (!text.ok()) return failed(text.error().message);
  const Result<json::Value> value = json::parse(*text);
  if (!value.ok() || !value->is_object()) return failed("golden.json is no JSON object");
  Asked asked;
  asked.prompt_ids = ids_in(value->get_object(), "input_ids");
  std::vector<std::int32_t> expected = ids_in(value->get_object(), "greedy_ids");
  if (asked.prompt_ids.empty() || expected.size() <= asked.prompt_ids.size())
    return failed("golden.json has no input_ids and greedy_ids that go on after them");
  expected.erase(expected.begin(),
                 expected.begin() + static_cast<std::ptrdiff_t>(asked.prompt_ids.size()));
  asked.max_tokens = static_cast<std::int32_t>(expected.size());
  const Result<Heard> heard = subject.client.ask(asked, subject.stop);
  if (!heard.ok()) return failed(heard.error().message);
  // The end itself may be told or not.
  const std::size_t same = common(heard->ids, expected);
  const bool ended = heard->stop_reason == "eos" && same + 1 >= expected.size();
  if (same != expected.size() && !ended) return differs("golden.json", expected, heard->ids);
  return passed(fmt::format("{} ids as transformers has them", expected.size()));
}

CheckResult check_chat(Subject& subject, MatrixCell& cell) {
  if (subject.facts.has_template && !*subject.facts.has_template)
    return skipped("the model has no chat template");
  const Result<json::Object> answer =
      subject.client.chat({.prompt = "Say hello.", .max_tokens = 16}, subject.stop);
  if (!answer.ok()) {
    if (answer.error().message.find("chat template") != std::string::npos)
      return skipped("the model has no chat template");
    return failed(answer.error().message);
  }
  const json::Value* choices = answer->if_contains("choices");
  if (choices == nullptr || !choices->is_array() || choices->get_array().size() != 1)
    return failed("the answer has no single choice");
  const json::Value* usage = answer->if_contains("usage");
  const json::Object* counts = usage != nullptr ? usage->if_object() : nullptr;
  const json::Value* tokens =
      counts != nullptr ? counts->if_contains("completion_tokens") : nullptr;
  if (tokens == nullptr || !tokens->is_int64())
    return failed("usage.completion_tokens is not there");
  if (tokens->get_int64() == 0 && cell.is_random)
    return passed("an answer that is over at once, as random weights may have it");
  if (tokens->get_int64() < 1 || tokens->get_int64() > 16)
    return failed(fmt::format("usage.completion_tokens is {}, expected 1 to 16 of an answer of 16",
                              tokens->get_int64()));
  return passed(fmt::format("{} tokens through /v1/chat/completions", tokens->get_int64()));
}

// Waits until nothing is computed any more; only of a worker that is ours alone.
CheckResult is_released(Subject& subject, std::string seen) {
  if (subject.pid == 0) return still_answers(subject, std::move(seen));
  const auto until = std::chrono::steady_clock::now() + kReleasePatience;
  for (;;) {
    const Result<ModelFacts> facts = subject.client.facts();
    if (!facts.ok()) return failed(seen + "; after that: " + facts.error().message);
    if (facts->slots_busy == 0) return still_answers(subject, std::move(seen));
    if (std::chrono::steady_clock::now() > until)
      return failed(fmt::format("{}; but {} slots are still busy after {} s", seen,
                                facts->slots_busy, kReleasePatience.count() / 1000));
    if (!base::real_clock().sleep_for(kTick, subject.stop)) return failed("interrupted");
  }
}

CheckResult check_cancel(Subject& subject, std::int64_t prompt, std::size_t after) {
  const std::int64_t room = subject.facts.context > 0 ? subject.facts.context : 512;
  const std::int64_t length =
      std::clamp<std::int64_t>(prompt, 1, std::max<std::int64_t>(1, room / 2));
  Asked asked;
  asked.max_tokens = static_cast<std::int32_t>(std::min<std::int64_t>(room - length, 2048));
  asked.temperature = 1;
  // An answer may be over before it can be cancelled: another prompt, another length.
  for (asked.seed = 1; asked.seed <= kCancelTries; ++asked.seed) {
    asked.prompt_ids =
        shuffled_prompt(subject.known, static_cast<std::size_t>(length), 1000 * asked.seed + after);
    const Result<double> ms = subject.client.cancel_after(asked, after, subject.stop);
    if (ms.ok())
      return is_released(subject,
                         fmt::format("stopped after {:.1f} ms, prompt of {}", *ms, length));
    if (ms.error().code != ErrorCode::InvalidArgument) return failed(ms.error().message);
  }
  return skipped(fmt::format("{} answers ended before they could be cancelled", kCancelTries));
}

CheckResult check_cancel_prefill(Subject& subject, MatrixCell&) {
  return check_cancel(subject, std::min(kCancelPromptMax, subject.scale.prompt_max), 0);
}

CheckResult check_cancel_decode(Subject& subject, MatrixCell&) {
  return check_cancel(subject, 8, 4);
}

CheckResult check_rapid_cancel(Subject& subject, MatrixCell&) {
  Asked asked = subject.story;
  asked.max_tokens = 200;
  asked.temperature = 1;
  int stopped = 0;
  for (asked.seed = 1; asked.seed <= 8; ++asked.seed) {
    if (subject.facts.context > 0)
      asked.max_tokens = static_cast<std::int32_t>(
          std::min<std::int64_t>(asked.max_tokens, subject.facts.context / 2));
    const Result<double> ms = subject.client.cancel_after(asked, 0, subject.stop);
    if (!ms.ok() && ms.error().code != ErrorCode::InvalidArgument)
      return failed(ms.error().message);
    stopped += ms.ok() ? 1 : 0;
  }
  return is_released(subject, fmt::format("{} of 8 stopped in a row", stopped));
}

CheckResult check_empty(Subject& subject, MatrixCell&) {
  const Result<Heard> heard = subject.client.ask({.prompt = ""}, subject.stop);
  if (heard.ok()) return failed("an empty prompt was answered, expected a 400");
  if (heard.error().code != ErrorCode::InvalidArgument)
    return failed("expected a 400, found: " + heard.error().message);
  return passed("refused: " + heard.error().message);
}

CheckResult check_longest(Subject& subject, MatrixCell&) {
  const std::int64_t context = subject.facts.context;
  if (context <= 1) return skipped("the context is not known");
  Asked asked;
  asked.prompt_ids = shuffled_prompt(subject.known, static_cast<std::size_t>(context), 5);
  asked.max_tokens = 1;
  const Result<Heard> refused = subject.client.ask(asked, subject.stop);
  if (refused.ok())
    return failed(fmt::format("{} tokens were answered in a context of {}", context, context));
  if (refused.error().code != ErrorCode::InvalidArgument &&
      refused.error().code != ErrorCode::TooLarge)
    return failed("expected a 400, found: " + refused.error().message);
  const std::int64_t length = std::min(context - 1, subject.scale.prompt_max);
  asked.prompt_ids.resize(static_cast<std::size_t>(length));
  const Result<Heard> heard = subject.client.ask(asked, subject.stop);
  if (!heard.ok()) return failed(fmt::format("{} tokens: {}", length, heard.error().message));
  if (heard->prompt_tokens != length)
    return failed(fmt::format("{} tokens were counted as {}", length, heard->prompt_tokens));
  return passed(fmt::format("{} tokens refused, {} answered{}", context, length,
                            length < context - 1 ? " (the rest was not tried)" : ""));
}

CheckResult check_unicode(Subject& subject, MatrixCell&) {
  Asked asked{.prompt = "Grüße, 世界! 👩‍🚀 Привет, مرحبا, e\u0301 —",
              .max_tokens = kOtherTokens,
              .temperature = 1,
              .seed = 3};
  const Result<Heard> heard = subject.client.ask(asked, subject.stop);
  if (!heard.ok()) return failed(heard.error().message);
  for (const std::string& piece : heard->pieces)
    if (!base::is_valid_utf8(piece)) return failed("a piece of the answer is no UTF-8");
  const Result<Heard> again = subject.client.ask(asked, subject.stop);
  if (!again.ok()) return failed("again: " + again.error().message);
  if (again->ids != heard->ids) return differs("with the same seed", heard->ids, again->ids);
  return passed(fmt::format("{} pieces of whole characters, the same with the same seed",
                            heard->pieces.size()));
}

// A stop text that ends one piece and begins the next, and that the text has nowhere before.
struct Border {
  std::string stop;
  std::size_t at = 0;  // bytes of text before it
};
std::optional<Border> find_border(const Heard& heard) {
  std::size_t end = 0;
  for (std::size_t i = 0; i + 1 < heard.pieces.size(); ++i) {
    end += heard.pieces[i].size();
    if (heard.pieces[i].empty() || heard.pieces[i + 1].empty()) continue;
    const auto is_inside = [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U; };
    std::size_t begin = end - 1;
    while (begin > 0 && is_inside(heard.text[begin])) --begin;
    std::size_t stop = end + 1;
    while (stop < heard.text.size() && is_inside(heard.text[stop])) ++stop;
    const std::string text = heard.text.substr(begin, stop - begin);
    if (i > 0 && heard.text.find(text) == begin) return Border{text, begin};
  }
  return std::nullopt;
}

CheckResult check_stop(Subject& subject, MatrixCell&) {
  const std::optional<Border> border = find_border(subject.greedy);
  if (!border) return skipped("the greedy answer has no two pieces to put a stop text across");
  Asked asked = subject.story;
  asked.stop = {border->stop};
  const Result<Heard> heard = subject.client.ask(asked, subject.stop);
  if (!heard.ok()) return failed(heard.error().message);
  if (heard->stop_reason != "stop_sequence")
    return failed("expected the end stop_sequence, found " + heard->stop_reason);
  if (heard->text != subject.greedy.text.substr(0, border->at))
    return failed(fmt::format("expected {} bytes before the stop text, found {}", border->at,
                              heard->text.size()));
  return passed(
      fmt::format("ends before a text that spans two tokens, after {} bytes", border->at));
}

CheckResult check_burst(Subject& subject, std::size_t count) {
  constexpr std::size_t kKinds = 4;
  std::vector<Asked> asks;
  for (std::size_t i = 0; i < count; ++i) {
    Asked asked;
    asked.prompt_ids = shuffled_prompt(subject.known, 6, 1000 + i % kKinds);
    asked.max_tokens = kSoakTokens;
    asks.push_back(std::move(asked));
  }
  const std::vector<TimedAnswer> answers = ask_together(subject.client, asks, subject.stop);
  std::array<const Heard*, kKinds> first{};
  std::size_t answered = 0;
  std::size_t refused = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const Result<Heard>& answer = answers[i].answer;
    if (!answer.ok()) {
      if (answer.error().code != ErrorCode::QueueFull) return failed(answer.error().message);
      ++refused;
      continue;
    }
    ++answered;
    const Heard*& same = first[i % kKinds];
    if (same == nullptr) same = &*answer;
    if (same->ids != answer->ids) return differs("the same request", same->ids, answer->ids);
  }
  const auto slots = static_cast<std::size_t>(std::max<std::int64_t>(1, subject.facts.slots));
  const std::string seen = fmt::format("{} answered, {} told to come later", answered, refused);
  if (answered < std::min(count, slots))
    return failed(fmt::format("{}; there are {} slots", seen, slots));
  return passed(seen);
}

CheckResult check_burst_10(Subject& subject, MatrixCell&) {
  return check_burst(subject, 10);
}
CheckResult check_burst_64(Subject& subject, MatrixCell&) {
  return check_burst(subject, 64);
}

// The requests of a soak, taken by a few threads.
class Soak {
 public:
  explicit Soak(Subject& subject) : subject_(subject) {}

  struct Outcome {
    std::int32_t done = 0;
    std::string error;
    std::vector<std::int64_t> memory;
  };
  Outcome run() {
    {
      std::vector<std::jthread> lanes;
      lanes.reserve(kSoakLanes);
      for (int i = 0; i < kSoakLanes; ++i)
        lanes.push_back(base::start_thread("soak", [this] { work(); }));
    }
    const base::MutexLock lock(mutex_);
    return std::move(outcome_);
  }

 private:
  void work() {
    while (!subject_.stop.stop_requested()) {
      const std::int32_t number = next_++;
      if (number >= subject_.scale.soak) return;
      Asked asked;
      asked.prompt_ids =
          shuffled_prompt(subject_.known, 8, 5000 + static_cast<std::uint64_t>(number));
      asked.max_tokens = kSoakTokens;
      const Result<Heard> heard = subject_.client.ask(asked, subject_.stop);
      const base::MutexLock lock(mutex_);
      if (!heard.ok()) {
        if (outcome_.error.empty())
          outcome_.error = fmt::format("request {}: {}", number + 1, heard.error().message);
        next_ = subject_.scale.soak;
        return;
      }
      ++outcome_.done;
      const std::int32_t step = std::max(1, subject_.scale.soak / kMemorySamples);
      if (subject_.pid > 0 && outcome_.done % step == 0)
        outcome_.memory.push_back(base::read_process_memory(subject_.pid).anonymous_bytes);
    }
  }

  Subject& subject_;
  std::atomic<std::int32_t> next_ = 0;
  base::Mutex mutex_;
  Outcome outcome_ LLORCH_GUARDED_BY(mutex_);
};

CheckResult check_soak(Subject& subject, MatrixCell&) {
  const auto [done, error, memory] = Soak(subject).run();
  if (!error.empty()) return failed(error);
  const std::string seen = fmt::format("{} answers", done);
  if (memory.size() < 4) return passed(seen + "; its memory is not on this machine");
  const std::int64_t middle = memory[memory.size() / 2];
  const std::int64_t grown = memory.back() - middle;
  const auto allowed = static_cast<std::int64_t>(static_cast<double>(middle) * kFlat) + 4 * kMiB;
  const std::string growth = fmt::format("{}, memory {} then {}", seen, base::human_bytes(middle),
                                         base::human_bytes(memory.back()));
  if (grown > allowed)
    return failed(fmt::format("{}: it grew by more than {}", growth, base::human_bytes(allowed)));
  return passed(growth);
}

CheckResult check_speeds(Subject& subject, MatrixCell& cell) {
  const Result<Measured> measured = measure_model(
      subject.client, subject.scale.speeds, [](std::string_view, double) {}, subject.stop);
  if (!measured.ok()) return failed(measured.error().message);
  for (const Figure& figure : measured->figures) cell.figures.push_back(figure);
  std::string seen = fmt::format("{} figures, {} times each", measured->figures.size(),
                                 subject.scale.speeds.repeats);
  for (const std::string& why : measured->skipped) seen += "; " + why;
  if (measured->figures.empty()) return skipped(seen);
  return passed(std::move(seen));
}

constexpr std::array<Check, 19> kChecks = {{
    {"checkpoints", check_checkpoints},
    {"ids", check_ids},
    {"golden", check_golden},
    {"chat", check_chat},
    {"cancel in prefill", check_cancel_prefill},
    {"cancel in decode", check_cancel_decode},
    {"empty prompt", check_empty},
    {"longest prompt", check_longest},
    {"unicode", check_unicode},
    {"stop across tokens", check_stop},
    {"rapid cancel", check_rapid_cancel},
    {"bad path", check_bad_path},
    {"cut file", check_cut_file},
    {"burst of 10", check_burst_10},
    {"burst of 64", check_burst_64},
    {"soak", check_soak},
    {"speeds", check_speeds},
    {"energy", check_energy},
    {"peak memory", check_memory},
}};

}  // namespace

MatrixScale quick_scale() {
  MatrixScale scale;
  scale.soak = 100;
  scale.prompt_max = 1024;
  scale.speeds.repeats = 3;
  scale.speeds.tokens = 32;
  scale.speeds.limit = std::chrono::minutes(2);
  return scale;
}

std::span<const Check> matrix_checks() {
  return kChecks;
}

Result<Asked> choose_story(const ModelClient& client, const std::stop_token& stop) {
  Asked best;
  std::size_t most = 0;
  for (const std::string_view text : kStories) {
    Asked asked{.prompt = std::string(text), .max_tokens = kStoryTokens};
    const Result<Heard> heard = client.ask(asked, stop);
    if (!heard.ok()) return heard.error();
    if (best.prompt.empty() || heard->ids.size() > most) best = asked;
    most = std::max(most, heard->ids.size());
    if (most >= static_cast<std::size_t>(kStoryTokens)) break;
  }
  return best;
}

std::string why_no_files(const Subject& subject) {
  return subject.program.empty() ? "the model's files are on another host"
                                 : "the model's files are inside the program";
}

CheckResult passed(std::string detail) {
  return {"", CheckState::Passed, std::move(detail)};
}
CheckResult failed(std::string detail) {
  return {"", CheckState::Failed, std::move(detail)};
}
CheckResult skipped(std::string why) {
  return {"", CheckState::Skipped, std::move(why)};
}

}  // namespace llorch::cli
