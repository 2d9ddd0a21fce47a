#include <fmt/format.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <memory>
#include <random>
#include <stop_token>
#include <string>
#include <vector>

#include "base/interrupt.h"
#include "base/json.h"
#include "base/terminal.h"
#include "catalog/download.h"
#include "cli/download_view.h"
#include "cli/find_pool.h"
#include "cli/output.h"
#include "cli/pool_command.h"
#include "fetch/chunks.h"
#include "fetch/model_ref.h"
#include "fetch/neighbour.h"
#include "fetch/source.h"
#include "fetch/transfer.h"

namespace llorch::cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  llorch-pool models download tinyllama
  llorch-pool models download hf:Qwen/Qwen2.5-0.5B-Instruct-GGUF::file=Q4_K_M
  llorch-pool models download https://example.org/models/my.gguf --id my-model --sha256 HEX
  llorch-pool models download tinyllama --from attic --from 10.0.0.7:9200

MODEL is an id (`llorch-pool models catalog` shows those that are known) or a reference:
hf:org/repo[@revision][::file=path or quantisation], npm:package[@version][::file=path],
https://…, file:/absolute/path (used where it lies). Without --id a reference names the
model itself: its last part in lower case, with its owner in front where another source's
model has that name already (org2-repo). A model is never replaced by one from elsewhere.

With a pool manager running the manager fetches it, and `models downloads` lists it. A
download that is under way already, there or in another process, is joined. Ctrl-C ends
what this command began; what it joined goes on.

A download that was cut off, by Ctrl-C or by anything else, goes on with the same command.
Every byte is checked against the hashes that the source publishes before the model is
used, or against --sha256 where it is one file. HF_TOKEN opens gated and private repositories, HF_ENDPOINT names a mirror, and the
usual proxy variables hold. --from takes the files from other hosts' pools and nowhere
else; LLORCH_TOKEN is sent to them.)";

struct DownloadArguments {
  std::string model;
  std::string ref;
  std::string id;
  std::string sha256;
  std::vector<std::string> from;
  int connections = 0;  // 0: not said
};

// The id and the reference from what was typed; nothing: complained about.
bool fill_request(const PoolContext& context, const DownloadArguments& arguments,
                  catalog::DownloadRequest& request) {
  const bool is_id = contract::is_model_id(arguments.model);
  if (is_id && !arguments.id.empty()) {
    complain("MODEL is an id already: --id is for a reference");
    return false;
  }
  if (!is_id && !arguments.ref.empty()) {
    complain(fmt::format("{} is not a model id, which --ref needs in front of it",
                         base::printable(arguments.model)));
    return false;
  }
  request.id = is_id ? arguments.model : arguments.id;
  request.ref = is_id ? arguments.ref : arguments.model;
  request.join = true;
  for (const char c : arguments.sha256)
    request.sha256 += c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c;
  if (!request.sha256.empty() && !fetch::is_sha256_hex(request.sha256)) {
    complain("--sha256 is no SHA-256: expected 64 hex digits");
    return false;
  }
  if (!request.id.empty() && !contract::is_model_id(request.id)) {
    complain(fmt::format("{} is not a model id", base::printable(request.id)));
    return false;
  }
  if (!request.ref.empty()) {
    if (const auto ref = fetch::parse_model_ref(request.ref); !ref.ok()) {
      complain(ref.error().message);
      return false;
    }
  }
  for (const std::string& host : arguments.from) {
    Result<fetch::Neighbour> neighbour = fetch::parse_neighbour(host, context.token);
    if (!neighbour.ok()) {
      complain(neighbour.error().message);
      return false;
    }
    request.neighbours.push_back(neighbour.take());
  }
  request.only_neighbours = !request.neighbours.empty();
  request.max_connections = arguments.connections;
  return true;
}

std::string summary(const contract::ModelEntry& entry) {
  std::string text = fmt::format("{}: {}", entry.id, base::human_bytes(entry.size_bytes));
  for (const std::string* part : {&entry.format, &entry.quantization, &entry.architecture})
    if (!part->empty()) text += " " + base::printable(*part);
  text += fmt::format(" in {}\n", base::printable(entry.path));
  if (!entry.unsupported.empty())
    text += fmt::format("No worker here runs it: {}\n", base::printable(entry.unsupported));
  return text;
}

// Every event as the user wants it.
class Shower {
 public:
  explicit Shower(bool json) : json_(json), view_(::isatty(STDERR_FILENO) == 1) {}

  void show(const contract::DownloadEvent& event) {
    if (json_)
      is_written_ = write_out(json::serialize(to_json(event)) + "\n") && is_written_;
    else
      view_.show(event);
  }
  void clear() { view_.clear(); }

  int finish(const contract::ModelEntry& entry) {
    const std::string last = json_ ? json::serialize(to_json(entry)) + "\n" : summary(entry);
    return write_out(last) && is_written_ ? 0 : kFailure;
  }

 private:
  bool json_;
  DownloadView view_;
  bool is_written_ = true;
};

int download_here(const PoolContext& context, const catalog::DownloadRequest& request) {
  std::stop_source stop;
  const base::InterruptWatch interrupts([&] { stop.request_stop(); });
  catalog::Downloader downloader;
  downloader.home = context.home;
  downloader.source = fetch::source_options(context.environment);
  downloader.source.retry.jitter_seed = std::random_device{}();
  downloader.transfer.retry.jitter_seed = std::random_device{}();
  downloader.transfer.ca_file = downloader.source.ca_file;
  Shower shower(context.json_output);
  const Result<contract::ModelEntry> entry = downloader.download(
      request, [&](const contract::DownloadEvent& event) { shower.show(event); }, stop.get_token());
  shower.clear();
  if (entry.ok()) return shower.finish(*entry);
  if (interrupts.interrupted()) {
    complain("interrupted; the same command goes on from here");
    return kInterrupted;
  }
  return fail(entry.error());
}

json::Object body_of(const PoolClient& client, const PoolContext& context,
                     const catalog::DownloadRequest& request) {
  json::Object body;
  if (!request.id.empty()) body["id"] = request.id;
  if (!request.ref.empty()) body["ref"] = request.ref;
  if (!request.sha256.empty()) body["sha256"] = request.sha256;
  if (request.max_connections > 0) body["connections"] = request.max_connections;
  // The user's token, which the manager may not have; not over an open line.
  const std::string token = fetch::source_options(context.environment).hf_token;
  if (!token.empty() && fetch::is_private_way(client.url())) body["hf_token"] = token;
  json::Array neighbours;
  for (const fetch::Neighbour& neighbour : request.neighbours) {
    json::Object one{{"url", neighbour.url}};
    if (!neighbour.token.empty()) one["token"] = neighbour.token;
    neighbours.push_back(std::move(one));
  }
  if (!neighbours.empty()) {
    body["neighbours"] = std::move(neighbours);
    body["only_neighbours"] = request.only_neighbours;
  }
  return body;
}

// What the manager said about a download that it took.
struct Accepted {
  std::string id;
  bool joined = false;
};
Result<Accepted> start_at_manager(PoolClient& client, const json::Object& body) {
  const Result<json::Value> answer = client.post("/v2/downloads", body);
  if (!answer.ok()) return answer.error();
  const json::Object* object = answer->if_object();
  const json::Value* id = object != nullptr ? object->if_contains("download_id") : nullptr;
  if (id == nullptr || !id->is_string())
    return Error{ErrorCode::Internal, "the pool manager's answer has no download_id"};
  const json::Value* joined = object->if_contains("joined");
  return Accepted{std::string(json::view(id->get_string())),
                  joined != nullptr && joined->is_bool() && joined->get_bool()};
}

int leave_download(PoolClient& client, const Accepted& accepted) {
  if (accepted.joined) {
    complain(
        fmt::format("left; the pool manager goes on with it, and `llorch-pool models downloads "
                    "cancel {}` ends it",
                    accepted.id));
    return kInterrupted;
  }
  if (const auto cancelled = client.remove("/v2/downloads/" + accepted.id); !cancelled.ok())
    complain(cancelled.error().message);
  complain("interrupted; the same command goes on from here");
  return kInterrupted;
}

int download_at_manager(PoolClient& client, const PoolContext& context,
                        const catalog::DownloadRequest& request) {
  std::stop_source stop;
  const base::InterruptWatch interrupts([&] { stop.request_stop(); });
  const Result<Accepted> accepted = start_at_manager(client, body_of(client, context, request));
  if (!accepted.ok()) return fail(accepted.error());
  if (accepted->joined && !context.json_output)
    write_err(fmt::format("the pool manager is at it already ({})\n", accepted->id));
  Shower shower(context.json_output);
  const Result<json::Object> outcome = pool_client::follow_download(
      client, accepted->id, [&](const contract::DownloadEvent& event) { shower.show(event); },
      stop.get_token());
  shower.clear();
  if (!outcome.ok()) {
    if (interrupts.interrupted()) return leave_download(client, *accepted);
    return fail(outcome.error());
  }
  const json::Value* model = outcome->if_contains("model");
  const Result<contract::ModelEntry> entry =
      contract::parse_model_entry(model != nullptr ? *model : json::Value(), "model");
  if (entry.ok()) return shower.finish(*entry);
  return fail(entry.error());
}

int run_download(const PoolContext& context, const DownloadArguments& arguments) {
  catalog::DownloadRequest request;
  if (!fill_request(context, arguments, request)) return kUsage;
  Result<PoolClient> client = find_pool(target_of(context));
  if (client.ok()) return download_at_manager(*client, context, request);
  if (context.pool_url.empty()) return download_here(context, request);
  return fail(client.error());
}

}  // namespace

void add_download_commands(CLI::App& parent, PoolContext& context) {
  const auto arguments = std::make_shared<DownloadArguments>();
  CLI::App* download =
      parent.add_subcommand("download", "fetch a model; goes on where it was cut off");
  download->add_option("MODEL", arguments->model, "its id, or a reference")->required();
  download->add_option("--ref", arguments->ref, "where from, when the catalog does not say");
  download->add_option("--id", arguments->id, "what it is called here, when MODEL is a reference")
      ->type_name("NAME");
  download->add_option("--sha256", arguments->sha256, "what its one file must be")
      ->type_name("HEX");
  download->add_option("--from", arguments->from, "take it from this host's pool; repeatable")
      ->type_name("HOST")
      ->allow_extra_args(false);
  download->add_option("--connections", arguments->connections, "at a time (8)")
      ->type_name("N")
      ->check(CLI::Range(1, fetch::kConnectionsMax).description(""));
  download->footer(kFooter);
  run_when_named(*download, context,
                 [&context, arguments] { return run_download(context, *arguments); });
}

}  // namespace llorch::cli
