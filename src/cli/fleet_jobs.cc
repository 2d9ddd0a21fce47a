// llorch jobs and why: submit, look, follow, cancel, explain.
#include "cli/fleet_jobs.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <charconv>
#include <chrono>
#include <iterator>
#include <memory>
#include <stop_token>
#include <utility>

#include "base/interrupt.h"
#include "base/terminal.h"
#include "base/utf8.h"
#include "cli/ask_flags.h"
#include "cli/fleet_tables.h"
#include "cli/output.h"
#include "contract/limits.h"
#include "http/url.h"
#include "pool_client/answer_reader.h"

namespace llorch::cli {
namespace {

constexpr const char* kJobsFooter = R"(Examples:
  llorch jobs submit --model builtin --prompt "Once upon a time"
  llorch jobs submit --model builtin --file prompts.jsonl --out answers.jsonl
  llorch jobs list
  llorch jobs show JOB
  llorch jobs logs JOB
  llorch jobs cancel JOB)";

constexpr const char* kSubmitFooter = R"(Examples:
  llorch jobs submit --model builtin --prompt "Once upon a time"
  llorch jobs submit --model llama-3.2-1b --chat --prompt "Who are you?" --deadline 2m
  job=$(llorch jobs submit --model builtin --prompt "The king" --detach)
  llorch jobs submit --model builtin --class batch --file prompts.jsonl --out out.jsonl

A line of the file is a text in quotation marks, or an object with "prompt" or
"messages", fields of the request beside it, and an "id" of your own. Each line of
--out (standard output without it) is the result of one, in their order: index, id,
job_id, status, text, stop_reason, tokens_out, or error; with --out, --json prints
an object with their numbers at the end.

Without --detach the answer streams to standard output and the job ends with the
command: Ctrl-C cancels it. A connection that breaks is made again; no word is lost.
--detach prints the job's id; `llorch jobs logs ID` has its answer.)";

constexpr const char* kLogsFooter = R"(Examples:
  llorch jobs logs JOB
  llorch jobs logs JOB --json | jq -c 'select(.event == "migrated")'

The answer from its beginning; of a job that runs, to its end. Answers are kept for
an hour after it. --json prints every event in a line of its own.)";

struct ListArguments {
  std::string status;
  std::int32_t limit = 50;
};

std::string task_path(const std::string& job) {
  return "/v2/tasks/" + http::percent_encode(job);
}

// Fills in what follows from the flags. InvalidArgument.
Status settle(SubmitArguments& arguments) {
  contract::TaskOptions& options = arguments.question.options;
  pool_client::Question& question = arguments.question.question;
  question.sampling.max_tokens = arguments.max_tokens;
  if (!arguments.pin.empty()) {
    options.mode = "pin";
    options.host = arguments.pin;
  }
  if (!arguments.deadline.empty()) {
    const Result<std::int64_t> ms = read_duration_ms(arguments.deadline);
    if (!ms.ok()) return ms.error();
    options.deadline_ms = *ms + std::chrono::duration_cast<std::chrono::milliseconds>(
                                    std::chrono::system_clock::now().time_since_epoch())
                                    .count();
  }
  if (!arguments.file.empty()) return ok_status();
  const std::vector<std::string> words =
      arguments.prompt.empty() ? std::vector<std::string>() : std::vector{arguments.prompt};
  Result<std::string> prompt = find_prompt(words, "--prompt \"Once upon a time\"");
  if (!prompt.ok()) return prompt.error();
  question.prompt = prompt.take();
  if (!arguments.chat && arguments.system.empty()) return ok_status();
  if (!arguments.system.empty()) question.messages.push_back({"system", arguments.system});
  question.messages.push_back({"user", question.prompt});
  return ok_status();
}

json::Object result_json(const std::string& job, const pool_client::Answer& answer) {
  json::Object object{{"job_id", job},
                      {"status", "completed"},
                      {"model", answer.model},
                      {"text", answer.text},
                      {"stop_reason", answer.stop_reason},
                      {"seed", answer.numbers.seed},
                      {"prompt_tokens", answer.numbers.prompt_tokens},
                      {"tokens_out", answer.numbers.tokens_out}};
  if (!answer.reasoning.empty()) object["reasoning"] = answer.reasoning;
  return object;
}

int submit(const FleetContext& context, SubmitArguments& arguments) {
  if (const Status settled = settle(arguments); !settled.ok()) {
    complain(settled.error().message);
    return kUsage;
  }
  const Result<FleetClient> client = find_orchestrator(target_of(context));
  if (!client.ok()) return fail(client.error());
  if (!arguments.file.empty()) return submit_file(*client, arguments, context.json_output);
  std::stop_source stop;
  const base::InterruptWatch watch([&stop] { stop.request_stop(); });
  pool_client::Answer answer;
  const json::Object body = task_body(arguments.question, answer);
  const Result<contract::TaskAccepted> accepted = submit_job(*client, body, stop.get_token());
  if (watch.interrupted() && !accepted.ok()) {
    complain("interrupted");
    return kInterrupted;
  }
  if (!accepted.ok()) return fail(accepted.error());
  if (arguments.question.options.detach) {
    return context.json_output ? print_json(contract::write_fields(*accepted))
                               : print(accepted->job_id + "\n");
  }
  const Status told =
      follow_and_print(*client, accepted->job_id, arguments.question,
                       {!context.json_output, context.color}, stop.get_token(), answer);
  if (watch.interrupted()) {
    complain(told.ok() ? "interrupted" : told.error().message);
    return kInterrupted;
  }
  if (!told.ok())
    return fail({told.error().code, fmt::format("{}: {} (`llorch why {}`)", accepted->job_id,
                                                told.error().message, accepted->job_id)});
  return context.json_output ? print_json(result_json(accepted->job_id, answer)) : 0;
}

int list(const FleetContext& context, const ListArguments& arguments) {
  const Result<FleetClient> client = find_orchestrator(target_of(context));
  if (!client.ok()) return fail(client.error());
  contract::TaskPage list;
  const auto wanted = static_cast<std::size_t>(arguments.limit);
  // A page may be shorter than was asked for, and others follow it.
  do {
    std::string path = fmt::format("/v2/tasks?limit={}", wanted - list.tasks.size());
    if (!arguments.status.empty()) path += "&status=" + arguments.status;
    if (!list.next.empty()) path += "&after=" + list.next;
    auto page = client->get<contract::TaskPage>(path);
    if (!page.ok()) return fail(page.error());
    list.next = std::move(page->next);
    std::move(page->tasks.begin(), page->tasks.end(), std::back_inserter(list.tasks));
  } while (!list.next.empty() && list.tasks.size() < wanted);
  if (context.json_output) return print_json(contract::write_fields(list));
  return print(jobs_text(list.tasks, terminal_view(context.color)));
}

int show(const FleetContext& context, const std::string& job) {
  const Result<FleetClient> client = find_orchestrator(target_of(context));
  if (!client.ok()) return fail(client.error());
  const auto task = client->get<contract::TaskView>(task_path(job));
  if (!task.ok()) return fail(task.error());
  if (context.json_output) return print_json(contract::write_fields(*task));
  return print(job_text(*task, terminal_view(context.color)));
}

int cancel(const FleetContext& context, const std::vector<std::string>& jobs) {
  const Result<FleetClient> client = find_orchestrator(target_of(context));
  if (!client.ok()) return fail(client.error());
  int code = 0;
  for (const std::string& job : jobs) {
    const Result<contract::TaskStopped> stopped = cancel_job(*client, job);
    if (!stopped.ok()) {
      code = fail(stopped.error());
      continue;
    }
    const int printed =
        context.json_output
            ? print_json(contract::write_fields(*stopped))
            : print(stopped->stop_ms > 0
                        ? fmt::format("{} {} within {:.0f} ms\n", base::printable(stopped->job_id),
                                      stopped->status, stopped->stop_ms)
                        : fmt::format("{} had ended: {}\n", base::printable(stopped->job_id),
                                      stopped->status));
    code = std::max(code, printed);
  }
  return code;
}

// Every event as a line.
int print_events(const FleetClient& client, const std::string& job, std::stop_token stop) {
  int code = 0;
  const Status followed = client.follow(
      job, "",
      [&code](const http::SseEvent& event) {
        const Result<json::Value> data = json::parse(event.data);
        json::Object object{{"event", event.event}};
        if (!event.id.empty()) object["id"] = event.id;
        object["data"] = data.ok() ? *data : json::Value(event.data);
        code = print_json(object);
        const bool is_last =
            event.event == "end" || event.event == "error" || event.data == "[DONE]";
        return code == 0 && !is_last;
      },
      [](const Error& why) { complain(why.message); }, std::move(stop));
  if (code != 0 || followed.ok()) return code;
  return followed.error().code == ErrorCode::Cancelled ? kInterrupted : fail(followed.error());
}

int logs(const FleetContext& context, const std::string& job) {
  const Result<FleetClient> client = find_orchestrator(target_of(context));
  if (!client.ok()) return fail(client.error());
  // Looking is not holding: Ctrl-C ends the command and leaves the job alone.
  const base::InterruptWatch watch([] { std::_Exit(kInterrupted); });
  if (context.json_output) return print_events(*client, job, {});
  const auto task = client->get<contract::TaskView>(task_path(job));
  if (!task.ok()) return fail(task.error());
  pool_client::Answer answer;
  answer.is_chat = task->kind != "execute";
  const Status told = follow_and_print(*client, job, {}, {true, context.color}, {}, answer);
  for (std::size_t i = 0; i < answer.others.size(); ++i) {
    const std::string head = fmt::format("\n(choice {})\n", i + 2);
    const int printed =
        print(base::paint(head, base::Color::Dim, context.color) + answer.others[i] + "\n");
    if (printed != 0) return printed;
  }
  return told.ok() ? 0 : fail(told.error());
}

int why(const FleetContext& context, const std::string& job) {
  const Result<FleetClient> client = find_orchestrator(target_of(context));
  if (!client.ok()) return fail(client.error());
  const auto sheet = client->get<contract::WhyView>(task_path(job) + "/why");
  if (!sheet.ok()) return fail(sheet.error());
  if (context.json_output) return print_json(contract::write_fields(*sheet));
  return print(why_text(*sheet, terminal_view(context.color)));
}

void add_submit_flags(CLI::App& submit, SubmitArguments& arguments) {
  contract::TaskOptions& options = arguments.question.options;
  submit.add_option("-m,--model", options.model, "a model of any catalog of the fleet")
      ->type_name("MODEL")
      ->required();
  CLI::Option* prompt =
      submit.add_option("-p,--prompt", arguments.prompt, "what to answer; without it, stdin")
          ->type_name("TEXT");
  submit.add_flag("--chat", arguments.chat, "as a message, through the model's chat template");
  add_system_flag(submit, arguments.system);
  submit.add_option("--file", arguments.file, "many prompts, one in each line")
      ->type_name("FILE")
      ->excludes(prompt);
  submit.add_option("--out", arguments.out, "where the results of --file go")->type_name("FILE");
  submit.add_option("--parallel", arguments.parallel, "prompts of --file at once (8)")
      ->type_name("N")
      ->check(CLI::Range(1, 64).description(""));
  submit.add_flag("--detach", options.detach, "print the job's id; it runs on");
  submit.add_option("--class", options.cls, "interactive (default), or batch: when there is room")
      ->check(CLI::IsMember({"interactive", "batch"}).description(""));
  submit.add_option("--mode", options.mode, "fast (default), or spread: spares its neighbours")
      ->check(CLI::IsMember({"fast", "spread"}).description(""));
  submit.add_option("--pin", arguments.pin, "on this host only")->type_name("HOST");
  submit.add_option("--label", options.labels, "on hosts with this label; may be repeated")
      ->type_name("LABEL")
      ->allow_extra_args(false);
  submit.add_option("--deadline", arguments.deadline, "done within 30s, 5m, 2h, or not at all")
      ->type_name("TIME");
  submit.add_option("-n,--max-tokens", arguments.max_tokens, "at most N tokens (400)")
      ->type_name("N")
      ->check(CLI::Range(1, contract::kMaxTokensMax).description(""));
  add_sampling_flags(submit, arguments.question.question.sampling);
}

void add_one_job_command(CLI::App& parent, FleetContext& context, const char* name,
                         const char* description, const char* footer,
                         int (*run)(const FleetContext&, const std::string&)) {
  auto job = std::make_shared<std::string>();
  add_fleet_command(parent, context, name, description, footer,
                    [&context, job, run] { return run(context, *job); })
      ->add_option("JOB", *job, "its id")
      ->required();
}

}  // namespace

Result<std::int64_t> read_duration_ms(std::string_view text) {
  const Error wrong{ErrorCode::InvalidArgument,
                    fmt::format("{} is no time; write 30s, 5m or 2h", base::quoted(text))};
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !(number > 0) || number > 1e7) return wrong;
  const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  const double scale = unit == "h" ? 3'600'000 : unit == "m" ? 60'000 : 1'000;
  if (!unit.empty() && unit != "s" && unit != "m" && unit != "h") return wrong;
  return static_cast<std::int64_t>(number * scale);
}

void add_jobs_commands(CLI::App& app, FleetContext& context) {
  CLI::App* jobs =
      app.add_subcommand("jobs", "submit work to the fleet, and see what became of it");
  jobs->set_help_flag("-h,--help", "print this help");
  jobs->require_subcommand(1);
  jobs->footer(kJobsFooter);
  auto arguments = std::make_shared<SubmitArguments>();
  add_submit_flags(
      *add_fleet_command(*jobs, context, "submit", "a prompt, or a file of them", kSubmitFooter,
                         [&context, arguments] { return submit(context, *arguments); }),
      *arguments);
  auto listing = std::make_shared<ListArguments>();
  CLI::App* list_command =
      add_fleet_command(*jobs, context, "list", "jobs, the newest first",
                        "Examples:\n  llorch jobs list --status live\n  llorch jobs list --json "
                        "| jq -r '.tasks[].job_id'",
                        [&context, listing] { return list(context, *listing); });
  list_command
      ->add_option("--status", listing->status,
                   "only these: queued, dispatched, running (live: all three), completed, failed, "
                   "cancelled")
      ->type_name("STATE")
      ->check(CLI::IsMember(std::vector<std::string>(contract::kTaskFilters.begin(),
                                                     contract::kTaskFilters.end()))
                  .description(""));
  list_command->add_option("--limit", listing->limit, "at most N (50)")
      ->type_name("N")
      ->check(CLI::Range(1, 1000).description(""));
  add_one_job_command(*jobs, context, "show", "everything about one job",
                      "Examples:\n  llorch jobs show JOB --json | jq .attempts", show);
  auto doomed = std::make_shared<std::vector<std::string>>();
  add_fleet_command(*jobs, context, "cancel", "end jobs, and say how long that took",
                    "Examples:\n  llorch jobs cancel JOB\n  llorch jobs cancel $(llorch jobs list "
                    "--status queued --json | jq -r '.tasks[].job_id')",
                    [&context, doomed] { return cancel(context, *doomed); })
      ->add_option("JOB", *doomed, "their ids")
      ->required();
  add_one_job_command(*jobs, context, "logs", "a job's answer, while it comes or afterwards",
                      kLogsFooter, logs);
  add_one_job_command(
      app, context, "why", "why a job is where it is, or nowhere",
      "Examples:\n  llorch why JOB\n\nEvery worker and device that was thought of, "
      "with the parts of the time\nuntil the job would be done there, and why others "
      "were refused.",
      why);
}

}  // namespace llorch::cli
