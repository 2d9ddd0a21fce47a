// The C interface over the worker's engine: each function is a border that errors cross as codes
// and exceptions do not cross.
#include "ffi/worker_ffi.h"

#include <fmt/format.h>

#include <atomic>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/channel.h"
#include "base/check.h"
#include "base/utf8.h"
#include "compute/create.h"
#include "contract/backend_kind.h"
#include "worker/engine_backend.h"
#include "worker/startup.h"

namespace llorch::ffi {
namespace {

constexpr int kTokensMax = 2048;
constexpr int kSmallestText = 5;  // the longest character and NUL
// More than any answer has: the engine's thread never waits for whoever reads.
constexpr std::size_t kPiecesMax = 2 * kTokensMax + 16;
constexpr std::chrono::minutes kStepLimit{10};

// One text for each thread, so that it stays valid while its reader looks at it.
std::string& last_detail() {
  thread_local std::string detail;
  return detail;
}

int code_of(ErrorCode code, int otherwise) {
  switch (code) {
    case ErrorCode::InvalidArgument:
    case ErrorCode::TooLarge:
      return CUDA_ERROR_INVALID_PARAMETER;
    case ErrorCode::OutOfMemory:
    case ErrorCode::DeviceOutOfMemory:
      return CUDA_ERROR_OUT_OF_MEMORY;
    case ErrorCode::DeviceFailed:
      return CUDA_ERROR_KERNEL_LAUNCH_FAILED;
    default:
      return otherwise;
  }
}

void tell(int* error, int code, std::string detail = {}) {
  if (error != nullptr) *error = code;
  if (code != CUDA_OK) last_detail() = std::move(detail);
}

// What a function of the interface does, with everything that is thrown turned into a code.
template <class T, class Body>
T guard(int* error, T failed, Body&& body) {
  try {
    tell(error, CUDA_OK);
    return body();
  } catch (const std::bad_alloc&) {
    tell(error, CUDA_ERROR_OUT_OF_MEMORY);
  } catch (...) {
    if (error != nullptr) *error = CUDA_ERROR_UNKNOWN;
  }
  return failed;
}

}  // namespace

// What several handles may still need when the first of them is given back.
struct Loaded {
  worker::EngineBackend backend{[](worker::EngineBackend::Patience) {}, kStepLimit};
  std::atomic<std::uint64_t> started = 0;  // names the generations

  ~Loaded() { backend.stop(); }
  std::uint64_t vram_bytes() const {
    const auto& vram = backend.model()->vram;
    return vram ? static_cast<std::uint64_t>(vram->taken_bytes()) : 0;
  }
};

// Pieces on their way from the engine's thread to the caller's.
class Pieces final : public worker_http::TextListener {
 public:
  void on_started(const contract::StartedEvent&) override {}
  void on_told(openai::ToldText) override {}
  bool on_text(openai::TextPiece piece) override {
    return piece.text.empty() || pieces_.try_push(std::move(piece.text));
  }
  void on_end(openai::GenerationResult result) override {
    // There is room: it holds more than any answer has.
    if (!result.ok()) CHECK(pieces_.try_push(result.error()), "more pieces than tokens");
    pieces_.close();
  }

  // Nothing: the end.
  std::optional<Result<std::string>> next() { return pieces_.pop(); }

 private:
  base::Channel<Result<std::string>> pieces_{kPiecesMax};
};

}  // namespace llorch::ffi

// NOLINTBEGIN(readability-identifier-naming): the names are those of the interface.
struct CudaContext {
  std::string device;  // "cpu", "cuda:0"
  std::vector<std::weak_ptr<llorch::ffi::Loaded>> models;
};

struct CudaModel {
  std::shared_ptr<llorch::ffi::Loaded> loaded;
};

struct InferenceResult {
  std::shared_ptr<llorch::ffi::Loaded> loaded;
  std::shared_ptr<llorch::ffi::Pieces> pieces;
  llorch::worker_http::Ticket ticket = 0;
  std::string rest;  // of a piece that did not fit
  std::optional<llorch::Error> failure;
  int num_given = 0;
};

using namespace llorch;  // NOLINT(google-build-using-namespace): below are functions of C
using ffi::guard;
using ffi::tell;

namespace {

template <class T>
T* refuse(int* error, int code, std::string detail) {
  tell(error, code, std::move(detail));
  return nullptr;
}

std::unique_ptr<CudaContext> open_device(int device, int* error) {
  const contract::BackendKind& kind =
      *contract::find_backend_kind(device < 0 ? contract::kCpu : contract::kCuda);
  auto context = std::make_unique<CudaContext>();
  context->device = contract::device_name(kind, device);
  if (device == CUDA_DEVICE_HOST) return context;
  const int count = compute::num_cuda_devices();
  // Whatever is wrong with the device is found now and not with the first model.
  const auto made = compute::make_backend(context->device);
  if (made.ok()) return context;
  int code = CUDA_ERROR_KERNEL_LAUNCH_FAILED;
  if (count == 0) code = CUDA_ERROR_DEVICE_NOT_FOUND;
  if (count > 0 && device >= count) code = CUDA_ERROR_INVALID_DEVICE;
  tell(error, code, made.error().message);
  return nullptr;
}

std::optional<std::string> find_fault(const char* prompt, int max_tokens, float temperature) {
  if (prompt == nullptr || *prompt == '\0') return "there is no prompt";
  if (!base::is_valid_utf8(prompt)) return "the prompt is not UTF-8";
  if (max_tokens < 1 || max_tokens > ffi::kTokensMax)
    return fmt::format("max_tokens is {}, expected 1 to {}", max_tokens, ffi::kTokensMax);
  if (!std::isfinite(temperature) || temperature < 0 || temperature > 2)
    return fmt::format("temperature is {}, expected 0 to 2", temperature);
  return std::nullopt;
}

}  // namespace

extern "C" {

int cuda_get_device_count(void) {
  return guard(nullptr, 0, [] { return compute::num_cuda_devices(); });
}

CudaContext* cuda_init(int device, int* error) {
  return guard<CudaContext*>(error, nullptr, [&]() -> CudaContext* {
    if (device < CUDA_DEVICE_HOST) {
      return refuse<CudaContext>(error, CUDA_ERROR_INVALID_DEVICE,
                                 fmt::format("there is no device {}", device));
    }
    return open_device(device, error).release();
  });
}

void cuda_destroy(CudaContext* context) {
  delete context;
}

CudaModel* cuda_load_model(CudaContext* context, const char* path, uint64_t* vram_bytes,
                           int* error) {
  return guard<CudaModel*>(error, nullptr, [&]() -> CudaModel* {
    if (context == nullptr || path == nullptr || *path == '\0')
      return refuse<CudaModel>(error, CUDA_ERROR_INVALID_PARAMETER, "no context, or no path");
    worker::WorkerOptions options;
    options.model = path;
    Result<std::unique_ptr<worker::ServingModel>> model =
        worker::load_serving_model(options, {&context->device, 1}, [](double) { return true; });
    if (!model.ok()) {
      const int code = ffi::code_of(model.error().code, CUDA_ERROR_MODEL_LOAD_FAILED);
      // A file that is not right is no parameter that is not right.
      return refuse<CudaModel>(
          error, code == CUDA_ERROR_INVALID_PARAMETER ? CUDA_ERROR_MODEL_LOAD_FAILED : code,
          model.error().message);
    }
    auto loaded = std::make_shared<ffi::Loaded>();
    loaded->backend.set_model(model.take());
    loaded->backend.set_ready();
    std::erase_if(context->models, [](const auto& other) { return other.expired(); });
    context->models.push_back(loaded);
    if (vram_bytes != nullptr) *vram_bytes = loaded->vram_bytes();
    return std::make_unique<CudaModel>(CudaModel{std::move(loaded)}).release();
  });
}

void cuda_unload_model(CudaModel* model) {
  if (model == nullptr) return;
  guard(nullptr, 0, [&] {
    model->loaded->backend.stop();
    return 0;
  });
  delete model;
}

uint64_t cuda_model_get_vram_usage(const CudaModel* model) {
  return model != nullptr ? model->loaded->vram_bytes() : 0;
}

uint64_t cuda_get_vram_usage(const CudaModel* model) {
  return cuda_model_get_vram_usage(model);
}

InferenceResult* cuda_inference_start(CudaModel* model, const char* prompt, int max_tokens,
                                      float temperature, uint64_t seed, int* error) {
  return guard<InferenceResult*>(error, nullptr, [&]() -> InferenceResult* {
    if (model == nullptr)
      return refuse<InferenceResult>(error, CUDA_ERROR_INVALID_PARAMETER, "there is no model");
    if (auto fault = find_fault(prompt, max_tokens, temperature))
      return refuse<InferenceResult>(error, CUDA_ERROR_INVALID_PARAMETER, std::move(*fault));
    auto result = std::make_unique<InferenceResult>();
    result->loaded = model->loaded;
    result->pieces = std::make_shared<ffi::Pieces>();
    worker_http::TextRequest request;
    request.job_id = fmt::format("ffi-{}", ++model->loaded->started);
    request.prompt.text = prompt;
    request.sampling.max_tokens = max_tokens;
    request.sampling.temperature = temperature;
    request.sampling.seed = seed;
    worker_http::Preparation prepared = model->loaded->backend.prepare(request, {});
    if (const auto* refused = std::get_if<worker_http::PrepareError>(&prepared)) {
      return refuse<InferenceResult>(error,
                                     ffi::code_of(refused->error.code, CUDA_ERROR_INFERENCE_FAILED),
                                     refused->error.message);
    }
    request.prepared = std::get<worker_http::PreparedPtr>(std::move(prepared));
    std::vector<worker_http::Submission> submissions;
    submissions.push_back({std::move(request), result->pieces});
    Result<std::vector<worker_http::Ticket>> tickets =
        model->loaded->backend.submit(std::move(submissions));
    if (!tickets.ok()) {
      return refuse<InferenceResult>(
          error, ffi::code_of(tickets.error().code, CUDA_ERROR_INFERENCE_FAILED),
          tickets.error().message);
    }
    result->ticket = tickets->front();
    return result.release();
  });
}

bool cuda_inference_next_token(InferenceResult* result, char* text, int size, int* index,
                               int* error) {
  return guard(error, false, [&] {
    if (result == nullptr || text == nullptr || size < ffi::kSmallestText) {
      tell(error, CUDA_ERROR_INVALID_PARAMETER, "no result, or room for less than a character");
      return false;
    }
    text[0] = '\0';
    if (result->rest.empty()) {
      std::optional<Result<std::string>> piece;
      if (!result->failure) piece = result->pieces->next();
      if (piece && !piece->ok()) result->failure = piece->error();
      if (result->failure) {
        tell(error, ffi::code_of(result->failure->code, CUDA_ERROR_INFERENCE_FAILED),
             result->failure->message);
      }
      if (!piece || !piece->ok()) return false;
      result->rest = piece->take();
    }
    std::size_t bytes = std::min(result->rest.size(), static_cast<std::size_t>(size - 1));
    // Not in the middle of a character.
    while (bytes < result->rest.size() &&
           (static_cast<unsigned char>(result->rest[bytes]) & 0xC0U) == 0x80U)
      --bytes;
    result->rest.copy(text, bytes);
    text[bytes] = '\0';
    result->rest.erase(0, bytes);
    if (index != nullptr) *index = result->num_given;
    ++result->num_given;
    return true;
  });
}

void cuda_inference_free(InferenceResult* result) {
  if (result == nullptr) return;
  guard(nullptr, 0, [&] {
    result->loaded->backend.abandon(result->ticket);
    return 0;
  });
  delete result;
}

bool cuda_check_vram_residency(const CudaModel* model, int* error) {
  return guard(error, false, [&] {
    if (model == nullptr) {
      tell(error, CUDA_ERROR_INVALID_PARAMETER, "there is no model");
      return false;
    }
    const auto& vram = model->loaded->backend.model()->vram;
    if (vram && vram->is_resident) return true;
    tell(error, CUDA_ERROR_VRAM_RESIDENCY_FAILED,
         vram ? "part of the model is not in the device's memory" : "the model is on the host");
    return false;
  });
}

uint64_t cuda_get_process_vram_usage(const CudaContext* context) {
  return guard(nullptr, std::uint64_t{0}, [&] {
    std::uint64_t bytes = 0;
    if (context == nullptr) return bytes;
    for (const auto& model : context->models) {
      if (const auto loaded = model.lock()) bytes += loaded->vram_bytes();
    }
    return bytes;
  });
}

bool cuda_check_device_health(const CudaContext* context, int* error) {
  return guard(error, false, [&] {
    if (context != nullptr) return true;
    tell(error, CUDA_ERROR_INVALID_PARAMETER, "there is no context");
    return false;
  });
}

const char* cuda_error_message(int code) {
  switch (code) {
    case CUDA_OK:
      return "ok";
    case CUDA_ERROR_INVALID_DEVICE:
      return "there is no device of that number";
    case CUDA_ERROR_OUT_OF_MEMORY:
      return "not enough memory";
    case CUDA_ERROR_MODEL_LOAD_FAILED:
      return "the model cannot be loaded";
    case CUDA_ERROR_INFERENCE_FAILED:
      return "the generation failed";
    case CUDA_ERROR_INVALID_PARAMETER:
      return "a parameter is missing or out of range";
    case CUDA_ERROR_KERNEL_LAUNCH_FAILED:
      return "the device cannot run our code";
    case CUDA_ERROR_VRAM_RESIDENCY_FAILED:
      return "the model is not in the device's memory";
    case CUDA_ERROR_DEVICE_NOT_FOUND:
      return "there is no CUDA device here";
    default:
      return "unknown error";
  }
}

const char* cuda_last_error_detail(void) {
  return ffi::last_detail().c_str();
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
