// What the commands of the fleet show and read, without any program.
#include "cli/fleet_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "base/terminal.h"
#include "base/utf8.h"
#include "cli/ask_fleet.h"
#include "cli/fleet_jobs.h"
#include "cli/sample_fleet.h"
#include "cli/top_view.h"

namespace llorch::cli {
namespace {

using ::testing::HasSubstr, ::testing::IsEmpty, ::testing::Not;

View view_at(std::size_t width) {
  return {std::chrono::system_clock::time_point(std::chrono::seconds(1767225642)), width, false};
}

TEST(FleetTables, TheHouseFitsIntoTheTerminal) {
  for (const std::size_t width : {80U, 120U}) {
    const std::string text = status_text(sample_status(), "http://127.0.0.1:8080", view_at(width));
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
      EXPECT_LE(base::count_scalars(line), width) << line;
    for (const char* part : {"up 2 h 5 m", "3 queued", "fetching llama-3.2-1b on local: [####",
                             "42 %, about 3 m", "[###", "3.00 GiB of 8.00 GiB", "no route to host",
                             "170.5", "f3a97b1eda02da3eff58c3e5508b2ade", "audit 0f1e2d"})
      EXPECT_THAT(text, HasSubstr(part)) << width;
    EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  }
  View colored = view_at(80);
  colored.color = true;
  EXPECT_THAT(status_text(sample_status(), "u", colored), HasSubstr("\x1b[32m"));
}

TEST(FleetTables, NarrowTerminalsGetALineForEachCell) {
  View narrow = view_at(40);
  narrow.fold_width = 40;
  contract::FleetStatus status = sample_status();
  status.tasks.push_back(status.tasks.front());
  std::string text = status_text(status, "http://127.0.0.1:8080", narrow);
  contract::KeyView key;
  key.id = "0123456789abcdef";
  key.name = "laptop";
  key.scope = "infer";
  text += hosts_text(status.hosts, narrow) + keys_text({key}, narrow);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    EXPECT_LE(base::count_scalars(line), 40) << line;
  EXPECT_THAT(text, HasSubstr("JOB     f3a97b1eda02da3eff58c3e5508b2ade\n"
                              "STATE   running\n"));
  EXPECT_THAT(text, HasSubstr("NAME          laptop\n"));
}

TEST(FleetTables, TheFirstInItsLineHasNobodyBeforeIt) {
  contract::TaskView task = sample_status().tasks.front();
  task.status = "queued";
  task.queue_position = 1;
  EXPECT_THAT(job_text(task, view_at(80)), HasSubstr("next in its line"));
  task.queue_position = 4;
  EXPECT_THAT(job_text(task, view_at(80)), HasSubstr("3 before it"));
}

TEST(FleetTables, WhyNamesThoseWhoWereRefusedAlsoAfterTheEnd) {
  contract::WhyView live;
  live.job_id = "j1";
  live.status = "queued";
  live.refused = {{"its host is down", 5, {"anna worker-cpu-0", "bert load on device 0"}},
                  {"other", 1, {}}};
  const std::string text = why_text(live, view_at(80));
  EXPECT_THAT(text, HasSubstr("5 refused: its host is down (anna worker-cpu-0, bert load on "
                              "device 0, …)"));
  EXPECT_THAT(text, HasSubstr("1 refused: other\n"));
  contract::WhyView ended;
  ended.job_id = "j2";
  ended.status = "failed";
  ended.sheet = "its deadline passed\n2 refused: labels (anna worker-cpu-0)\n";
  EXPECT_THAT(why_text(ended, view_at(80)), HasSubstr("  2 refused: labels (anna worker-cpu-0)\n"));
  EXPECT_THAT(why_text(ended, view_at(80)), Not(HasSubstr("nothing is known")));
}

TEST(FleetTables, WhyHasLongTimesAsPeopleSayThem) {
  contract::WhyView why;
  why.job_id = "j1";
  why.status = "queued";
  why.candidates.push_back({.host = "a", .worker = "w", .finish_ms = 7'500'900, .wait_ms = 830});
  const std::string text = why_text(why, view_at(100));
  EXPECT_THAT(text, HasSubstr("2 h 5 m"));
  EXPECT_THAT(text, HasSubstr("830 ms"));
}

TEST(FleetTables, TimesAreShort) {
  EXPECT_EQ(duration_text(0.42), "0.4 s");
  EXPECT_EQ(duration_text(42.9), "42 s");
  EXPECT_EQ(duration_text(185), "3 m");
  EXPECT_EQ(duration_text(7500), "2 h 5 m");
  EXPECT_EQ(duration_text(900000), "10 d");
}

TEST(FleetJobs, DurationsHaveUnits) {
  EXPECT_EQ(*read_duration_ms("30s"), 30'000);
  EXPECT_EQ(*read_duration_ms("1.5m"), 90'000);
  EXPECT_EQ(*read_duration_ms("2h"), 7'200'000);
  EXPECT_EQ(*read_duration_ms("90"), 90'000);
  for (const char* wrong : {"", "s", "-3s", "0", "3 s", "3d", "nan", "1e99h"})
    EXPECT_FALSE(read_duration_ms(wrong).ok()) << wrong;
}

TEST(FleetJobs, AQuestionBecomesATask) {
  FleetQuestion question;
  question.options.model = "m";
  question.options.cls = "batch";
  question.question.prompt = "Once";
  pool_client::Answer answer;
  const json::Object text = task_body(question, answer);
  EXPECT_EQ(text.at("kind"), "execute");
  EXPECT_EQ(text.at("model"), "m");
  EXPECT_EQ(text.at("prompt"), "Once");
  EXPECT_EQ(text.at("class"), "batch");
  EXPECT_FALSE(text.contains("job_id"));
  EXPECT_FALSE(text.contains("host"));
  question.question.messages = {{"user", "Hello"}};
  const json::Object chat = task_body(question, answer);
  EXPECT_EQ(chat.at("kind"), "chat");
  EXPECT_FALSE(chat.contains("model"));
  EXPECT_EQ(chat.at("request").at("model"), "m");
  EXPECT_EQ(chat.at("request").at("messages").at(0).at("content"), "Hello");
}

TEST(FleetJobs, NoticesAreSentences) {
  const auto text = [](const char* event, const char* data) {
    const auto notice = read_notice({event, data, ""});
    return notice ? notice->text : "none";
  };
  EXPECT_EQ(text("queued", R"({"queue_position":3,"predicted_start_ms":12000})"),
            "queued, 2 before it, about 12 s");
  EXPECT_EQ(text("queued", R"({"queue_position":1})"), "queued, next in its line");
  EXPECT_EQ(text("queued", "{}"), "queued");
  EXPECT_EQ(text("loading", R"({"stage":"fetching","host":"anna","progress":0.5})"),
            "fetching on anna");
  EXPECT_THAT(text("migrated", R"({"from":"a/w","to":"b/w","at_token":7,"gap_ms":30})"),
              HasSubstr("goes on at b/w after 7 tokens"));
  EXPECT_EQ(text("token", "{}"), "none");
  EXPECT_EQ(text("loading", "nonsense"), "loading");
  EXPECT_EQ(notice_line({.text = "loading", .progress = 0.5}),
            "[##########          ]  50 %  loading");
}

TEST(FleetJobs, ABatchShowsHowFarItIs) {
  EXPECT_EQ(batch_progress({}, 0, 0), base::progress_bar(1, 24) + " 0/0");
  EXPECT_EQ(batch_progress({.begun = 3, .done = 1, .failed = 1}, 4, 10),
            base::progress_bar(0.25, 24) + " 1/4, 2 under way, 1 failed, about " +
                duration_text(30) + " more");
  EXPECT_EQ(batch_progress({.begun = 4, .done = 4}, 4, 10), base::progress_bar(1, 24) + " 4/4");
}

TEST(FleetJobs, LinesOfAFileAreTextsOrObjects) {
  FleetQuestion question;
  question.options.model = "m";
  const Result<PromptLine> text = read_prompt_line(R"("Once")", question);
  ASSERT_TRUE(text.ok()) << text.error().message;
  EXPECT_EQ(text->body.at("prompt"), "Once");
  EXPECT_TRUE(text->id.is_null());
  const Result<PromptLine> object =
      read_prompt_line(R"({"id":"x","prompt":"Two","temperature":0})", question);
  ASSERT_TRUE(object.ok()) << object.error().message;
  EXPECT_EQ(object->id, "x");
  EXPECT_EQ(object->body.at("temperature"), 0);
  EXPECT_FALSE(object->body.contains("id"));
  const Result<PromptLine> chat =
      read_prompt_line(R"({"messages":[{"role":"user","content":"Hi"}]})", question);
  ASSERT_TRUE(chat.ok()) << chat.error().message;
  EXPECT_TRUE(chat->is_chat);
  EXPECT_EQ(chat->body.at("request").at("messages").at(0).at("content"), "Hi");
  for (const char* wrong : {"{", "7", "{}", "[]", R"({"text":"x"})"})
    EXPECT_FALSE(read_prompt_line(wrong, question).ok()) << wrong;
}

TEST(TopView, KeysSelectSortAndCancel) {
  contract::FleetStatus status = sample_status();
  contract::TaskView second = status.tasks.front();
  second.job_id = "second";
  second.submitted_at = "2026-01-02T00:00:00Z";
  second.tokens_out = 1;
  status.tasks.push_back(second);
  TopView top;
  top.take(status);
  EXPECT_THAT(top.render("u", view_at(80), 60), HasSubstr("> second")) << "the newest first";
  EXPECT_THAT(top.press("s"), IsEmpty());
  EXPECT_THAT(top.press("k"), IsEmpty());
  EXPECT_THAT(top.render("u", view_at(80), 60), HasSubstr("> f3a97b1")) << "the most tokens first";
  EXPECT_THAT(top.press("\x1b[B"
                        "c"),
              IsEmpty());
  EXPECT_THAT(top.render("u", view_at(80), 60), HasSubstr("cancel second? y"));
  EXPECT_THAT(top.press("n"), IsEmpty());
  const std::vector<TopAction> actions = top.press("cyq");
  ASSERT_EQ(actions.size(), 2U);
  EXPECT_EQ(actions[0].kind, TopAction::Kind::Cancel);
  EXPECT_EQ(actions[0].job, "second");
  EXPECT_EQ(actions[1].kind, TopAction::Kind::Quit);
  const std::string small = top.render("u", view_at(80), 8);
  EXPECT_LE(std::count(small.begin(), small.end(), '\n'), 7);
  for (const bool color : {false, true}) {
    View view = view_at(20);
    view.color = color;
    std::string narrow = top.render("http://127.0.0.1:8080", view, 12);
    for (std::size_t at = narrow.find('\x1b'); at != std::string::npos; at = narrow.find('\x1b'))
      narrow.erase(at, narrow.find('m', at) - at + 1);
    std::size_t rows = 0;
    for (std::size_t begin = 0; begin <= narrow.size();) {
      const std::size_t end = std::min(narrow.find('\n', begin), narrow.size());
      rows += std::max<std::size_t>(
          1, (base::count_scalars(narrow.substr(begin, end - begin)) + 19) / 20);
      begin = end + 1;
    }
    EXPECT_LE(rows, 12U) << narrow << "the first line would leave the screen";
    EXPECT_GT(rows, 6U) << narrow;
  }
  status.tasks.clear();
  top.press("c");
  top.take(status);
  EXPECT_THAT(top.press("y"), IsEmpty()) << "the job has ended: nothing to cancel";
}

}  // namespace
}  // namespace llorch::cli
