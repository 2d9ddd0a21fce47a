// One model that can be asked: by a worker, or by a fleet. What `llorch bench` and `llorch matrix`
// measure and try, seen as a user sees it. Private to cli/.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "cli/fleet_client.h"
#include "http/sse.h"
#include "pool_client/pool_client.h"

namespace llorch::cli {

// A text to continue.
struct Asked {
  std::string prompt;
  std::vector<std::int32_t> prompt_ids{};  // instead of the prompt, where there are some
  std::int32_t max_tokens = 16;
  float temperature = 0;
  std::uint64_t seed = 1;
  std::vector<std::string> stop{};
};

// What came. Times are from the request on, as seen from here.
struct Heard {
  std::string text;
  std::vector<std::string> pieces;  // of the text, one for each event
  std::vector<std::int32_t> ids;
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;
  std::string stop_reason;
  double first_ms = 0;  // the first token; 0: none came
  double last_ms = 0;
  double total_ms = 0;
};

// What is known about it without asking it anything.
struct ModelFacts {
  std::string model;
  std::string device;  // "cpu", "cuda:0"; empty: a fleet's host decides
  std::string build;
  std::string device_class;
  std::string quant;
  std::int64_t context = 0;
  std::int64_t slots = 0;
  std::int64_t slots_busy = 0;
  std::optional<bool> has_template;
};

// Every call blocks, and any thread may make one.
class ModelClient {
 public:
  virtual ~ModelClient() = default;

  virtual Result<ModelFacts> facts() const = 0;
  // A stop ends the request, and with it the compute: Cancelled.
  virtual Result<Heard> ask(const Asked& asked, std::stop_token stop) const = 0;
  // Asks and cancels, after so many tokens; with 0 while the prompt is being read. The
  // milliseconds from the wish until the stream had ended. InvalidArgument when the answer had
  // ended before.
  virtual Result<double> cancel_after(const Asked& asked, std::size_t tokens,
                                      std::stop_token stop) const = 0;
  // Its prompt as one message through OpenAI's endpoint: the answer's object.
  virtual Result<json::Object> chat(const Asked& asked, std::stop_token stop) const = 0;
};

// Folds the events of one answer. One thread.
class HeardReader {
 public:
  // False when there is nothing more to come: is_complete() or error().
  bool take(const http::SseEvent& event);

  bool has_begun() const { return has_begun_; }
  bool is_complete() const { return is_complete_; }
  const std::optional<Error>& error() const { return error_; }
  const Heard& heard() const { return heard_; }
  Heard take_heard() { return std::move(heard_); }

 private:
  double now_ms() const;

  const std::chrono::steady_clock::time_point asked_ = std::chrono::steady_clock::now();
  Heard heard_;
  bool has_begun_ = false;
  bool is_complete_ = false;
  std::optional<Error> error_;
};

class WorkerModel : public ModelClient {
 public:
  explicit WorkerModel(std::string uri);

  Result<ModelFacts> facts() const override;
  Result<Heard> ask(const Asked& asked, std::stop_token stop) const override;
  Result<double> cancel_after(const Asked& asked, std::size_t tokens,
                              std::stop_token stop) const override;
  Result<json::Object> chat(const Asked& asked, std::stop_token stop) const override;

 private:
  // `on_event` is called behind each event.
  Result<Heard> execute(const Asked& asked, const std::string& job, std::stop_token stop,
                        const std::function<void(const HeardReader& so_far)>& on_event) const;

  const std::string uri_;
  const pool_client::PoolClient calls_;
};

class FleetModel : public ModelClient {
 public:
  // `host`: empty for any.
  FleetModel(FleetClient client, std::string model, std::string host)
      : client_(std::move(client)), model_(std::move(model)), host_(std::move(host)) {}

  Result<ModelFacts> facts() const override;
  Result<Heard> ask(const Asked& asked, std::stop_token stop) const override;
  Result<double> cancel_after(const Asked& asked, std::size_t tokens,
                              std::stop_token stop) const override;
  // By whatever host the fleet chooses: OpenAI's endpoints know no hosts.
  Result<json::Object> chat(const Asked& asked, std::stop_token stop) const override;

 private:
  json::Object task_of(const Asked& asked) const;

  const FleetClient client_;
  const std::string model_;
  const std::string host_;
};

}  // namespace llorch::cli
