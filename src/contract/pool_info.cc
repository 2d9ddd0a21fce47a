#include "contract/pool_info.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/utf8.h"
#include "contract/peer_message.h"
#include "contract/pool_info_fields.h"

namespace llorch::contract {
template <class V, Described<StartWorkerRequest> T>
void describe(V& v, T& request) {
  v("backend", request.backend, {.must = true, .names = kBackendNames});
  v("model", request.model, {.must = true, .bytes = {1, 128}});
  v("gpu", request.gpu, {.min = 0, .max = kGpuNumberMax});
  v("ctx", request.context, {.min = kContextTokensMin, .max = kContextTokensMax});
  v("slots", request.slots, {.min = 1, .max = kSlotsMax});
  v("kv", request.kv_type, {.names = kKvTypes, .omit_empty = true});
  v("chat_template", request.chat_template,
    {.bytes = {1, 4096},
     .omit_empty = true,
     .doc = "A built-in template's name, or the whole path of a file on the pool's host."});
  v("on_demand", request.on_demand,
    {.omit_empty = true,
     .doc = "For an orchestrator's jobs: it may stop it when they are done. Else it stays."});
}

std::string_view name(PoolWorkerState state) {
  return kWorkerStates[static_cast<std::size_t>(state)];
}
std::string_view name(ExitCategory category) {
  return kExitCategories[static_cast<std::size_t>(category)];
}

std::int64_t cache_tokens(std::int32_t context, std::int32_t slots) {
  // Few requests fill a long context; more than this is not kept ready for each of them.
  constexpr std::int32_t kUsualTokens = 4096;
  const auto whole_blocks = [](std::int64_t tokens) {
    return (tokens + kCacheBlockTokens - 1) / kCacheBlockTokens * kCacheBlockTokens;
  };
  return std::max(whole_blocks(context), whole_blocks(std::min(context, kUsualTokens)) * slots);
}

json::Object to_json(const MemoryNeed& need) {
  return write_fields(need);
}

Result<MemoryNeed> parse_memory_need(const json::Value& value) {
  return read_peer<MemoryNeed>("memory need", value);
}

json::Object to_json(const StartWorkerRequest& request) {
  return write_fields(request);
}

StartWorkerRequest parse_start_worker_request(const json::Object& body,
                                              std::vector<json::FieldError>& errors) {
  json::FieldReader reader(body);
  FieldTaker taker(reader);
  StartWorkerRequest request;
  describe(taker, request);
  if (request.gpu && request.backend == kCpu)
    reader.fail("gpu", "cuda only",
                "is for workers on a GPU, and cpu was asked for: leave gpu out or ask for cuda");
  const std::string& chosen = request.chat_template;
  const bool is_name = std::ranges::find(kChatTemplates, chosen) != kChatTemplates.end();
  if (!chosen.empty() && !is_name && !chosen.starts_with('/')) {
    reader.fail("chat_template", "a name or a whole path",
                fmt::format("must be the name of a built-in template ({}) or begin with /, not {}",
                            fmt::join(kChatTemplates, ", "), base::quoted(chosen)));
  }
  for (json::FieldError& error : reader.finish()) errors.push_back(std::move(error));
  return request;
}

json::Object to_json(const PoolWorker& worker) {
  return write_fields(worker);
}

Result<PoolWorker> parse_pool_worker(const json::Value& value) {
  return read_peer<PoolWorker>("worker", value);
}

json::Object to_json(const HostInfo& host) {
  return write_fields(host);
}

Result<HostInfo> parse_host_info(const json::Value& value) {
  return read_peer<HostInfo>("host", value);
}

template <>
json::Object schema_of<MemoryNeed>() {
  return described_schema<MemoryNeed>(SchemaOf::Answer);
}
template <>
json::Object schema_of<StartWorkerRequest>() {
  return described_schema<StartWorkerRequest>(SchemaOf::Request);
}
template <>
json::Object schema_of<PoolWorker>() {
  return described_schema<PoolWorker>(SchemaOf::Answer);
}
template <>
json::Object schema_of<HostInfo>() {
  return described_schema<HostInfo>(SchemaOf::Answer);
}

}  // namespace llorch::contract
