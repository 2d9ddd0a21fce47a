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
#include "catalog/model_ref.h"
#include "catalog/neighbour.h"
#include "catalog/source.h"
#include "cli/download_view.h"
#include "cli/output.h"
#include "cli/pool_command.h"

namespace llorch::cli {
namespace {

constexpr int kConnectionsMax = 16;

constexpr const char* kFooter = R"(Examples:
  llorch-pool models download tinyllama
  llorch-pool models download hf:Qwen/Qwen2.5-0.5B-Instruct-GGUF::file=Q4_K_M
  llorch-pool models download my-model --ref https://example.org/models/my.gguf
  llorch-pool models download tinyllama --from attic --from 10.0.0.7:9200

MODEL is an id (`llorch-pool models catalog` shows those that are known) or a reference:
hf:org/repo[@revision][::file=path or quantisation], npm:package[@version][::file=path],
https://…, file:/absolute/path (used where it lies). Without --ref a reference names the
model itself: its last part in lower case.

A download that was cut off, by Ctrl-C or by anything else, goes on with the same command.
Every byte is checked against the hashes that the source publishes before the model is
used. HF_TOKEN opens gated and private repositories, HF_ENDPOINT names a mirror, and the
usual proxy variables hold. --from takes the files from other hosts' pools and nowhere
else; LLORCH_TOKEN is sent to them.)";

struct DownloadArguments {
  std::string model;
  std::string ref;
  std::vector<std::string> from;
  int connections = catalog::TransferOptions{}.max_connections;
};

// The id and the reference from what was typed; nothing: complained about.
bool fill_request(const PoolContext& context, const DownloadArguments& arguments,
                  catalog::DownloadRequest& request) {
  if (contract::is_model_id(arguments.model)) {
    request.id = arguments.model;
    request.ref = arguments.ref;
  } else if (arguments.ref.empty()) {
    request.ref = arguments.model;
  } else {
    complain(fmt::format("{} is not a model id, which --ref needs in front of it",
                         base::printable(arguments.model)));
    return false;
  }
  if (!request.ref.empty()) {
    if (const auto ref = catalog::parse_model_ref(request.ref); !ref.ok()) {
      complain(ref.error().message);
      return false;
    }
  }
  for (const std::string& host : arguments.from) {
    Result<catalog::Neighbour> neighbour = catalog::parse_neighbour(host, context.token);
    if (!neighbour.ok()) {
      complain(neighbour.error().message);
      return false;
    }
    request.neighbours.push_back(neighbour.take());
  }
  request.only_neighbours = !request.neighbours.empty();
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

int run_download(const PoolContext& context, const DownloadArguments& arguments) {
  catalog::DownloadRequest request;
  if (!fill_request(context, arguments, request)) return kUsage;
  std::stop_source stop;
  const base::InterruptWatch interrupts([&] { stop.request_stop(); });
  catalog::Downloader downloader;
  downloader.home = context.home;
  downloader.source = catalog::source_options(context.environment);
  downloader.source.retry.jitter_seed = std::random_device{}();
  downloader.transfer.retry.jitter_seed = std::random_device{}();
  downloader.transfer.ca_file = downloader.source.ca_file;
  downloader.transfer.max_connections = arguments.connections;
  DownloadView view(::isatty(STDERR_FILENO) == 1);
  bool is_written = true;
  const Result<contract::ModelEntry> entry = downloader.download(
      request,
      [&](const catalog::DownloadEvent& event) {
        if (context.json_output)
          is_written = write_out(json::serialize(to_json(event)) + "\n") && is_written;
        else
          view.show(event);
      },
      stop.get_token());
  view.clear();
  if (!entry.ok()) {
    if (interrupts.interrupted()) {
      complain("interrupted; the same command goes on from here");
      return kInterrupted;
    }
    complain(entry.error().message);
    return kFailure;
  }
  const std::string last =
      context.json_output ? json::serialize(to_json(*entry)) + "\n" : summary(*entry);
  return write_out(last) && is_written ? 0 : kFailure;
}

}  // namespace

void add_download_commands(CLI::App& parent, PoolContext& context) {
  const auto arguments = std::make_shared<DownloadArguments>();
  CLI::App* download =
      parent.add_subcommand("download", "fetch a model; goes on where it was cut off");
  download->add_option("MODEL", arguments->model, "its id, or a reference")->required();
  download->add_option("--ref", arguments->ref, "where from, when the catalog does not say");
  download->add_option("--from", arguments->from, "take it from this host's pool; repeatable")
      ->type_name("HOST")
      ->allow_extra_args(false);
  download->add_option("--connections", arguments->connections, "at a time")
      ->check(CLI::Range(1, kConnectionsMax))
      ->capture_default_str();
  download->footer(kFooter);
  download->callback([&context, arguments] {
    context.chosen = [&context, arguments] { return run_download(context, *arguments); };
  });
}

}  // namespace llorch::cli
