// llorch keys: made, shown and revoked.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <system_error>

#include "base/terminal.h"
#include "cli/fleet_command.h"
#include "cli/fleet_tables.h"
#include "cli/output.h"
#include "cli/parse_words.h"
#include "http/url.h"

namespace llorch::cli {
namespace {

constexpr const char* kKeysFooter = R"(Examples:
  llorch keys add laptop
  llorch keys add ci --models 'llama-*' --tokens-per-day 100000 --rate 60/min
  llorch keys list
  llorch keys revoke laptop)";

constexpr const char* kAddFooter = R"(Examples:
  llorch keys add laptop
  llorch keys add ci --models 'llama-*' --tokens-per-day 100000 --rate 60/min

The key is shown once and stored as a hash only. A program sends it as
"Authorization: Bearer KEY", OpenAI's clients as their API key.)";

struct AddArguments {
  contract::KeyRequest request;
  std::string rate;
};

// "60", "60/min".
Result<std::int64_t> read_rate(std::string text) {
  if (text.ends_with("/min")) text.resize(text.size() - 4);
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 1)
    return Error{ErrorCode::InvalidArgument,
                 "--rate: expected requests a minute, 1 or more, as in 60/min"};
  return number;
}

int add_key(const FleetContext& context, const AddArguments& arguments) {
  contract::KeyRequest request = arguments.request;
  if (!arguments.rate.empty()) {
    const Result<std::int64_t> rate = read_rate(arguments.rate);
    if (!rate.ok()) {
      complain(rate.error().message);
      return kUsage;
    }
    request.requests_per_minute = *rate;
  }
  const Result<FleetClient> client = find_orchestrator(target_of(context));
  if (!client.ok()) return fail(client.error());
  const auto made = client->post<contract::KeyView>("/v2/keys", contract::write_fields(request));
  if (!made.ok()) return fail(made.error());
  if (context.json_output) return print_json(contract::write_fields(*made));
  if (const int code = print(made->key + "\n"); code != 0) return code;
  write_err(fmt::format("this key is shown once; `llorch keys revoke {}` takes it back\n",
                        shell_word(base::printable(made->name))));
  return 0;
}

int list_keys(const FleetContext& context) {
  const Result<FleetClient> client = find_orchestrator(target_of(context));
  if (!client.ok()) return fail(client.error());
  const auto list = client->get<contract::KeyList>("/v2/keys");
  if (!list.ok()) return fail(list.error());
  if (context.json_output) return print_json(contract::write_fields(*list));
  return print(keys_text(list->keys, terminal_view(context.color)));
}

int revoke_key(const FleetContext& context, const std::string& key) {
  const Result<FleetClient> client = find_orchestrator(target_of(context));
  if (!client.ok()) return fail(client.error());
  const Result<json::Value> done = client->calls().remove("/v2/keys/" + http::percent_encode(key));
  if (!done.ok()) return fail(done.error());
  if (context.json_output) return print_json(*done);
  return print(fmt::format("{} is revoked\n", base::printable(key)));
}

}  // namespace

void add_keys_commands(CLI::App& app, FleetContext& context) {
  CLI::App* keys = app.add_subcommand("keys", "who may use the fleet from elsewhere");
  keys->set_help_flag("-h,--help", "print this help");
  keys->require_subcommand(1);
  keys->footer(kKeysFooter);
  auto arguments = std::make_shared<AddArguments>();
  CLI::App* add =
      add_fleet_command(*keys, context, "add", "make a key and show it once", kAddFooter,
                        [&context, arguments] { return add_key(context, *arguments); });
  contract::KeyRequest& request = arguments->request;
  add->add_option("NAME", request.name, "whose it is")->required();
  add->add_option("--scope", request.scope,
                  "infer (default): ask models; admin: everything; join: a pool may join")
      ->check(CLI::IsMember({"infer", "admin", "join"}).description(""));
  add->add_option("--models", request.models,
                  "only models that match; several with commas, or repeated")
      ->type_name("GLOB")
      ->delimiter(',')
      ->allow_extra_args(false);
  add->add_option("--tokens-per-day", request.tokens_per_day, "at most, of prompts and answers")
      ->type_name("N")
      ->check(CLI::Validator(
          [](const std::string& text) {
            const bool has_digit = text.find_first_of("123456789") != std::string::npos;
            return text.starts_with('-') || !has_digit ? "expected a number of tokens, 1 or more"
                                                       : "";
          },
          ""));
  add->add_option("--rate", arguments->rate, "requests a minute, at most")->type_name("N/min");
  add_fleet_command(*keys, context, "list", "keys and what they used",
                    "Examples:\n  llorch keys list --json | jq '.keys[].tokens_today'",
                    [&context] { return list_keys(context); });
  auto name = std::make_shared<std::string>();
  CLI::App* revoke =
      add_fleet_command(*keys, context, "revoke", "take a key back: its jobs end at once",
                        "Examples:\n  llorch keys revoke laptop",
                        [&context, name] { return revoke_key(context, *name); });
  revoke->add_option("KEY", *name, "its id or name")->required();
}

}  // namespace llorch::cli
