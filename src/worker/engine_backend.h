// EngineBackend: InferenceBackend = tokenizer + chat template + engine.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "worker/job_table.h"
#include "worker/serving_model.h"
#include "worker_http/backend.h"

namespace llorch::worker {

// Answers from the first moment; has a model once set_model was called. Any thread.
class EngineBackend final : public worker_http::InferenceBackend {
 public:
  // How long what runs may go on; none: until its own end.
  using Patience = std::optional<std::chrono::seconds>;

  // `on_shutdown` may be called on an io thread, several times. A step that takes longer than
  // `step_limit` makes the worker unhealthy until it ends.
  EngineBackend(std::function<void(Patience)> on_shutdown, std::chrono::milliseconds step_limit);
  ~EngineBackend() override;

  // What the start-up tells.
  void set_progress(double progress) { progress_.store(progress); }
  void set_model(std::unique_ptr<ServingModel> model);  // once
  void set_ready();                                     // healthy from now on
  // From now on nothing is accepted; what runs goes on.
  void begin_drain();
  bool is_idle() const;  // nothing runs or waits
  // Ends what runs: each listener hears that the worker stops. Idempotent.
  void stop();

  worker_http::LoadStatus status() const override;
  worker_http::WorkerStats stats() const override;
  const worker_http::ModelInfo* model() const override;
  std::vector<base::GpuReading> read_gpus() const override;
  worker_http::Preparation prepare(const worker_http::TextRequest& request,
                                   const base::WorkLimit& limit) const override;
  worker_http::Preparation prepare(const worker_http::EmbedRequest& request,
                                   const base::WorkLimit& limit) const override;
  std::optional<worker_http::PrepareError> check_told(const worker_http::TextRequest& request,
                                                      const base::WorkLimit& limit) const override;
  Result<std::vector<worker_http::Ticket>> submit(
      std::vector<worker_http::Submission> submissions) override;
  Result<worker_http::Ticket> embed(
      worker_http::EmbedRequest request,
      std::shared_ptr<worker_http::EmbeddingListener> listener) override;
  void abandon(worker_http::Ticket ticket) override;
  Status cancel(std::string_view job_id) override;
  Result<worker_http::TextRequest::Prompt> render_chat(const json::Object& context,
                                                       const base::WorkLimit& limit) const override;
  Result<worker_http::TokenizedText> tokenize(std::string_view text, bool add_special,
                                              bool parse_special,
                                              const base::WorkLimit& limit) const override;
  Result<std::string> detokenize(const std::vector<std::int32_t>& ids) const override;
  void request_shutdown(Patience patience) override {
    begin_drain();  // nothing is accepted once this was answered
    on_shutdown_(patience);
  }

 private:
  using State = worker_http::LoadStatus::State;

  // The model, or why there is none to use.
  Result<const ServingModel*> accepting_model() const;
  Result<const ServingModel*> loaded_model() const;

  const std::function<void(Patience)> on_shutdown_;
  const std::chrono::milliseconds step_limit_;
  const std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
  const std::shared_ptr<JobTable> jobs_ = std::make_shared<JobTable>();
  std::atomic<State> state_ = State::Loading;
  std::atomic<double> progress_ = 0;
  std::unique_ptr<ServingModel> owned_;               // set once, before model_
  std::atomic<const ServingModel*> model_ = nullptr;  // what readers look at
};

// Why an engine with these numbers is not healthy; empty when it is.
std::string describe_hang(const engine::EngineStats& stats, engine::Clock::time_point now,
                          std::chrono::milliseconds step_limit);

}  // namespace llorch::worker
