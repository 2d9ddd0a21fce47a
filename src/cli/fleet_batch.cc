// llorch jobs submit --file: many prompts, several at once, their results in the order of the file.
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <istream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/interrupt.h"
#include "base/mutex.h"
#include "base/terminal.h"
#include "base/thread.h"
#include "cli/fleet_jobs.h"
#include "cli/fleet_tables.h"
#include "cli/output.h"
#include "pool_client/answer_reader.h"

namespace llorch::cli {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kLineBytesMax = std::size_t{1} << 20;
// Results that wait for one before them; nobody begins a prompt further ahead.
constexpr std::size_t kAheadMax = 1024;
constexpr milliseconds kFullPause{500};  // before a full queue is asked again
constexpr milliseconds kTick{100};
constexpr milliseconds kTellEvery{60'000};  // why the next prompt has to wait

struct Prompt {
  std::size_t index = 0;
  std::string line;
};

std::string make_word() {
  std::random_device random;
  return fmt::format("batch-{:08x}{:08x}{:08x}", random(), random(), random());
}

// The file's lines for many threads, and their results in order for one file.
class Batch {
 public:
  Batch(std::istream& in, std::FILE* out) : in_(in), out_(out) {}

  // Its own among all batches.
  const std::string& word() const { return word_; }

  // Nothing: there are no more, or it is over. Waits while too many results are not written yet.
  std::optional<Prompt> next(std::stop_token stop) {
    for (;;) {
      {
        const base::MutexLock lock(mutex_);
        if (is_over_) return std::nullopt;
        if (begun_ < written_ + kAheadMax) return read_line();
      }
      if (!base::real_clock().sleep_for(kTick, stop)) return std::nullopt;
    }
  }

  void finish(std::size_t index, json::Object result, const Status& asked) {
    const base::MutexLock lock(mutex_);
    ++done_;
    if (!asked.ok()) ++(asked.error().code == ErrorCode::Cancelled ? cancelled_ : failed_);
    waiting_.emplace(index, std::move(result));
    while (!waiting_.empty() && waiting_.begin()->first == written_) {
      const std::string text = json::serialize(waiting_.begin()->second) + "\n";
      if (std::fwrite(text.data(), 1, text.size(), out_) != text.size() || std::fflush(out_) != 0)
        is_over_ = is_unwritable_ = true;
      waiting_.erase(waiting_.begin());
      ++written_;
    }
  }

  // Why this prompt must wait before it is taken; empty: it need not.
  void note_refusal(std::size_t index, const std::string& why) {
    const base::MutexLock lock(mutex_);
    if (why.empty()) {
      refused_.erase(index);
    } else {
      refused_[index] = why;
    }
  }

  BatchCounts counts() const {
    const base::MutexLock lock(mutex_);
    return {begun_,         done_,
            failed_,        cancelled_,
            is_unwritable_, refused_.empty() ? std::string() : refused_.begin()->second};
  }

 private:
  std::optional<Prompt> read_line() LLORCH_REQUIRES(mutex_) {
    std::string line;
    while (std::getline(in_, line)) {
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      return Prompt{begun_++, std::move(line)};
    }
    is_over_ = true;
    return std::nullopt;
  }

  const std::string word_ = make_word();
  mutable base::Mutex mutex_;
  std::istream& in_ LLORCH_GUARDED_BY(mutex_);
  std::FILE* const out_;
  std::map<std::size_t, json::Object> waiting_ LLORCH_GUARDED_BY(mutex_);
  std::size_t begun_ LLORCH_GUARDED_BY(mutex_) = 0;
  std::size_t done_ LLORCH_GUARDED_BY(mutex_) = 0;
  std::size_t failed_ LLORCH_GUARDED_BY(mutex_) = 0;
  std::size_t cancelled_ LLORCH_GUARDED_BY(mutex_) = 0;
  std::size_t written_ LLORCH_GUARDED_BY(mutex_) = 0;
  bool is_over_ LLORCH_GUARDED_BY(mutex_) = false;
  bool is_unwritable_ LLORCH_GUARDED_BY(mutex_) = false;
  std::map<std::size_t, std::string> refused_ LLORCH_GUARDED_BY(mutex_);
};

json::Array texts_json(const std::vector<std::string>& texts) {
  json::Array array;
  for (const std::string& text : texts) array.emplace_back(text);
  return array;
}

// Waits for room in the queue as long as it is full, and for an orchestrator that is started again.
// A word of its own keeps a submission whose answer was lost from being a second job.
Result<contract::TaskAccepted> submit_patiently(const FleetClient& client, Batch& batch,
                                                const json::Object& body, std::size_t index,
                                                std::stop_token stop) {
  const std::string word = fmt::format("{}-{}", batch.word(), index);
  std::optional<FleetClient> moved;
  auto heard = std::chrono::steady_clock::now();
  for (;;) {
    Result<contract::TaskAccepted> accepted = submit_job(moved ? *moved : client, body, stop, word);
    const auto now = std::chrono::steady_clock::now();
    const bool is_full = !accepted.ok() && accepted.error().code == ErrorCode::QueueFull;
    if (is_full) heard = now;
    const bool is_away =
        !accepted.ok() && may_return(accepted.error()) && now - heard < kReturnPatience;
    const bool waits = is_full || is_away;
    batch.note_refusal(index, waits ? accepted.error().message : std::string());
    if (!waits) return accepted;
    if (!base::real_clock().sleep_for(kFullPause, stop))
      return Error{ErrorCode::Cancelled, "interrupted"};
    if (std::optional<FleetClient> found = (moved ? *moved : client).find_again())
      moved.emplace(std::move(*found));
  }
}

Status ask_one(const FleetClient& client, Batch& batch, const Prompt& prompt,
               const SubmitArguments& arguments, std::stop_token stop, json::Object& result) {
  const Result<PromptLine> line = read_prompt_line(prompt.line, arguments.question);
  if (!line.ok()) return line.error();
  if (!line->id.is_null()) result["id"] = line->id;
  const Result<contract::TaskAccepted> accepted =
      submit_patiently(client, batch, line->body, prompt.index, stop);
  if (!accepted.ok()) return accepted.error();
  result["job_id"] = accepted->job_id;
  result["status"] = accepted->status;
  if (arguments.question.options.detach) return ok_status();
  pool_client::Answer answer;
  answer.is_chat = line->is_chat;
  const JobEars ears{.on_text = [](std::string_view, bool) { return true; },
                     .on_notice = [](const JobNotice&) {}};
  Status followed =
      follow_job(client, accepted->job_id, arguments.question, ears, std::move(stop), answer);
  result["text"] = answer.text;
  if (!answer.reasoning.empty()) result["reasoning"] = answer.reasoning;
  if (!answer.others.empty()) result["others"] = texts_json(answer.others);
  if (!followed.ok()) return followed;
  result["status"] = "completed";
  result["stop_reason"] = answer.stop_reason;
  result["tokens_out"] = answer.numbers.tokens_out;
  return ok_status();
}

void work(const FleetClient& client, const SubmitArguments& arguments, Batch& batch,
          std::stop_token stop) {
  while (!stop.stop_requested()) {
    const std::optional<Prompt> prompt = batch.next(stop);
    if (!prompt) return;
    json::Object result{{"index", prompt->index}};
    const Status asked = ask_one(client, batch, *prompt, arguments, stop, result);
    if (!asked.ok()) {
      result["status"] = asked.error().code == ErrorCode::Cancelled ? "cancelled" : "failed";
      result["error"] = asked.error().message;
    }
    batch.finish(prompt->index, std::move(result), asked);
  }
}

std::size_t count_prompts(const std::string& file) {
  std::ifstream in(file);
  std::size_t count = 0;
  for (std::string line; std::getline(in, line);)
    if (line.find_first_not_of(" \t\r") != std::string::npos) ++count;
  return count;
}

// What an interrupt left: cut off, and not begun.
std::string unanswered_text(const BatchCounts& counts, std::size_t total) {
  std::string text;
  if (counts.cancelled > 0) text += fmt::format(", {} cancelled", counts.cancelled);
  if (counts.begun < total) text += fmt::format(", {} not begun", total - counts.begun);
  return text;
}

}  // namespace

std::string batch_progress(const BatchCounts& counts, std::size_t total, double seconds) {
  const double fraction =
      total > 0 ? static_cast<double>(counts.done) / static_cast<double>(total) : 1;
  std::string text = fmt::format("{} {}/{}", base::progress_bar(fraction, 24), counts.done, total);
  if (counts.begun > counts.done) text += fmt::format(", {} under way", counts.begun - counts.done);
  if (counts.failed > 0) text += fmt::format(", {} failed", counts.failed);
  if (counts.done > 0 && counts.done < total)
    text += fmt::format(", about {} more", duration_text(seconds / fraction - seconds));
  return text;
}

Result<PromptLine> read_prompt_line(std::string_view line, const FleetQuestion& question) {
  if (line.size() > kLineBytesMax) {
    return Error{ErrorCode::TooLarge, fmt::format("the line has {} bytes, at most {} are possible",
                                                  line.size(), kLineBytesMax)};
  }
  Result<json::Value> value = json::parse(line);
  if (!value.ok()) return value.error().in("the line is no JSON");
  json::Object given;
  if (value->is_string()) given["prompt"] = *value;
  if (value->is_object()) given = std::move(value->get_object());
  const bool is_chat = given.contains("messages");
  if (!is_chat && !given.contains("prompt")) {
    return Error{ErrorCode::InvalidArgument,
                 "expected a text, or an object with \"prompt\" or \"messages\""};
  }
  PromptLine read;
  read.is_chat = is_chat;
  if (const json::Value* id = given.if_contains("id")) read.id = *id;
  given.erase("id");
  FleetQuestion asked = question;
  asked.question.prompt = "-";
  if (is_chat) asked.question.messages = {{"user", "-"}};
  pool_client::Answer answer;
  read.body = task_body(asked, answer);
  json::Object& fields = is_chat ? read.body["request"].get_object() : read.body;
  if (!asked.question.sampling.seed) fields.erase("seed");
  for (auto& [name, field] : given) fields[name] = std::move(field);
  return read;
}

int submit_file(const FleetClient& client, const SubmitArguments& arguments, bool json_output) {
  std::ifstream in(arguments.file);
  // A folder opens, and only reading it fails.
  if (!in || (in.peek() == std::ifstream::traits_type::eof() && in.bad())) {
    return fail({ErrorCode::NotFound,
                 fmt::format("{} cannot be read; --file names a file with one prompt in each line",
                             arguments.file)});
  }
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(
      arguments.out.empty() ? nullptr : std::fopen(arguments.out.c_str(), "we"), &std::fclose);
  if (!arguments.out.empty() && file == nullptr)
    return fail({ErrorCode::Internal, fmt::format("--out {} cannot be written", arguments.out)});
  std::stop_source stop;
  const base::InterruptWatch watch([&stop] { stop.request_stop(); });
  const std::size_t total = count_prompts(arguments.file);
  Batch batch(in, file ? file.get() : stdout);
  base::StatusLine line(stderr);
  const auto started = std::chrono::steady_clock::now();
  {
    std::vector<std::jthread> threads;
    threads.reserve(static_cast<std::size_t>(arguments.parallel));
    std::atomic<int> running = arguments.parallel;
    for (std::int32_t i = 0; i < arguments.parallel; ++i) {
      threads.push_back(base::start_thread("batch", [&] {
        work(client, arguments, batch, stop.get_token());
        --running;
      }));
    }
    std::optional<std::chrono::steady_clock::time_point> told;
    while (running > 0) {
      const auto now = std::chrono::steady_clock::now();
      const BatchCounts counts = batch.counts();
      if (!counts.refused.empty() && (!told || now - *told > kTellEvery)) {
        line.clear();
        write_err(fmt::format("it waits to be taken: {}\n", base::printable(counts.refused)));
        told = now;
      }
      const std::chrono::duration<double> elapsed = now - started;
      line.show(batch_progress(counts, total, elapsed.count()));
      std::this_thread::sleep_for(kTick);
    }
  }
  line.clear();
  const BatchCounts counts = batch.counts();
  if (counts.is_unwritable) return fail({ErrorCode::Internal, "the results cannot be written"});
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - started;
  if (json_output && file) {
    const int printed = print_json(json::Object{{"total", total},
                                                {"done", counts.answered()},
                                                {"failed", counts.failed},
                                                {"cancelled", counts.cancelled},
                                                {"seconds", elapsed.count()},
                                                {"out", arguments.out}});
    if (printed != 0) return printed;
  }
  write_err(fmt::format("{} of {} done, {} failed{}, {}\n", counts.answered(), total, counts.failed,
                        unanswered_text(counts, total), duration_text(elapsed.count())));
  if (watch.interrupted()) return kInterrupted;
  return counts.failed + counts.cancelled > 0 ? kFailure : 0;
}

}  // namespace llorch::cli
