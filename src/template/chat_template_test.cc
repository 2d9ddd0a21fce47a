#include "template/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

namespace llorch::jinja {
namespace {

using ::testing::HasSubstr;

json::Value context(std::string_view text) {
  return json::parse(text).take();
}

Result<std::string> render(std::string_view source, std::string_view variables = "{}",
                           const RenderOptions& options = {}) {
  const Result<ChatTemplate> parsed = ChatTemplate::parse(source);
  if (!parsed.ok()) return parsed.error();
  Result<MarkedText> rendered = parsed->render(context(variables), options);
  if (!rendered.ok()) return rendered.error();
  return rendered->text;
}

Error error_of(std::string_view source, const RenderOptions& options = {}) {
  const Result<std::string> rendered = render(source, "{}", options);
  EXPECT_FALSE(rendered.ok()) << source;
  return rendered.ok() ? Error{ErrorCode::Internal, *rendered} : rendered.error();
}

TEST(ChatTemplate, SyntaxErrorsNameTheLine) {
  const Error error = error_of("a\nb\n{% if x %}\n{{ y z }}{% endif %}");
  EXPECT_EQ(error.code, ErrorCode::Corrupt);
  EXPECT_EQ(error.message, "chat template line 4: expected '}}', found 'z'");
}

TEST(ChatTemplate, RuntimeErrorsNameTheLine) {
  const Error error = error_of("a\n{% if true %}\n\n  {{ nothing.at_all }}\n{% endif %}");
  EXPECT_EQ(error.code, ErrorCode::Corrupt);
  EXPECT_EQ(error.message, "chat template line 4: 'nothing' is undefined");
}

TEST(ChatTemplate, WhatLoadsOtherTemplatesIsUnsupportedByName) {
  for (const std::string_view tag : {"include", "import", "from", "extends", "block"}) {
    const Error error = error_of("{% " + std::string(tag) + " 'x' %}");
    EXPECT_EQ(error.code, ErrorCode::Unsupported) << tag;
    EXPECT_THAT(error.message, HasSubstr("'" + std::string(tag) + "'"));
  }
}

TEST(ChatTemplate, RaiseExceptionPassesItsMessageOn) {
  const Error error = error_of("\n{{ raise_exception('Roles must alternate!') }}");
  EXPECT_EQ(error.code, ErrorCode::InvalidArgument);
  EXPECT_EQ(error.message, "Roles must alternate!");
}

TEST(ChatTemplate, TheDateComesFromTheCallerOnly) {
  EXPECT_THAT(error_of("{{ strftime_now('%Y') }}").message, HasSubstr("none was given"));
  RenderOptions options;
  options.now = std::chrono::local_seconds(std::chrono::seconds(86400 * 59));
  EXPECT_EQ(render("{{ strftime_now('%d %b %Y %A %j') }}", "{}", options).value(),
            "01 Mar 1970 Sunday 060");
  EXPECT_THAT(error_of("{{ strftime_now('%Q') }}", options).message, HasSubstr("%Q"));
}

TEST(ChatTemplate, RefusesSourceThatIsNotUtf8OrTooLarge) {
  EXPECT_EQ(error_of("a\xff").code, ErrorCode::Corrupt);
  EXPECT_EQ(error_of(std::string((1U << 20) + 1, 'a')).code, ErrorCode::TooLarge);
}

TEST(ChatTemplate, RefusesAContextThatIsNoObject) {
  const ChatTemplate parsed = ChatTemplate::parse("x").take();
  EXPECT_EQ(parsed.render(context("[1]"), {}).error().code, ErrorCode::InvalidArgument);
}

// Each of these would take for ever, fill the memory or overflow the stack.
TEST(ChatTemplate, HostileTemplatesAreErrors) {
  const std::string_view sources[] = {
      "{{ 'a' * 10 ** 9 }}",
      "{{ [0] * 10 ** 9 }}",
      "{{ 'a' * 10 ** 30 }}",
      "{{ range(10 ** 12) }}",
      "{{ 9 ** 9 ** 9 }}",
      "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
      "{% set n = namespace(s='a') %}{% for x in range(99) %}{% set n.s = n.s + n.s %}{% endfor %}",
      "{% set n = namespace(s=[0]) %}{% for x in range(99) %}{% set n.s = n.s + n.s %}{% endfor %}",
      "{% set n = namespace(s=[]) %}{% for x in range(999) %}{% set n.s = [n.s] %}{% endfor %}",
      "{% set n = namespace(s=[]) %}{% for x in range(999) %}{% set n.s = {0: n.s} %}{% endfor %}",
      "{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}",
      "{% set s = 'a' * 99999 %}{{ s.replace('a', s) }}",
      "{% set s = 'a' * 99999 %}{{ s | replace('', s) }}",
      "{% set s = 'a' * 99999 %}{{ s.join(s) }}",
      "{{ 'x'.center(10 ** 12) }}",
      "{{ 'x'.zfill(10 ** 12) }}",
      "{{ '%999999999d' % 1 }}",
      "{{ '{:999999999}'.format(1) }}",
      "{{ 'x' | indent(10 ** 12, true) }}",
      "{{ {'a': 1} | tojson(indent=10 ** 9) }}",
      "{% for x in range(9999) %}{{ 'a' * 99999 }}{% endfor %}",
      "{% set l = range(99999) | list %}{% for x in l %}{{ l | sort | first }}{% endfor %}",
      "{% set l = range(99999) | list %}{{ l | unique | list | length }}",
      "{% set l = ['a' * 999999] * 999 %}{{ l | tojson | length }}{{ l | string | length }}",
      "{{ (2 ** 126 - 1) * 4 }}",
      "{{ -(2 ** 126) * 2 // -1 }}",
  };
  RenderOptions options;
  options.limits.max_steps = 1'000'000;
  options.limits.max_work_bytes = 64U << 20;
  for (const std::string_view source : sources) {
    EXPECT_EQ(error_of(source, options).code, ErrorCode::TooLarge) << source;
  }
}

TEST(ChatTemplate, DeepOrLongExpressionsAreErrorsNotOverflows) {
  const auto repeated = [](std::string_view part, std::size_t count) {
    std::string text;
    for (std::size_t i = 0; i < count; ++i) text += part;
    return text;
  };
  const std::size_t many = 50'000;
  const std::string sources[] = {
      "{{ " + repeated("(", many) + "1" + repeated(")", many) + " }}",
      "{{ " + repeated("[", many) + repeated("]", many) + " }}",
      "{{ " + repeated("not ", many) + "1 }}",
      "{{ " + repeated("-", many) + "1 }}",
      "{{ 1" + repeated(" + 1", many) + " }}",
      "{{ x" + repeated(".y", many) + " }}",
      "{{ x" + repeated("[0]", many) + " }}",
      "{{ x" + repeated("|e", many) + " }}",
      "{{ x" + repeated("()", many) + " }}",
      "{{ x" + repeated(" if y else x", many) + " }}",
      repeated("{% if x %}", many) + repeated("{% endif %}", many),
      "{% set " + repeated("(", many) + "x" + repeated(")", many) + " = 1 %}",
  };
  for (const std::string& source : sources) {
    EXPECT_EQ(error_of(source).code, ErrorCode::TooLarge) << source.substr(0, 40);
  }
  EXPECT_TRUE(render("{{ 1" + repeated(" ~ 1", many) + " }}").ok());
  EXPECT_TRUE(render("{% if 0 %}" + repeated("{% elif 0 %}", many) + "{% endif %}").ok());
}

TEST(ChatTemplate, LimitsAreTheCallers) {
  RenderOptions options;
  options.limits.max_output_bytes = 10;
  EXPECT_EQ(render("{{ '0123456789' }}", "{}", options).value(), "0123456789");
  EXPECT_EQ(error_of("{{ '0123456789' }}x", options).code, ErrorCode::TooLarge);
  options = {};
  options.limits.max_steps = 50;
  EXPECT_TRUE(render("{% for x in range(5) %}{% endfor %}", "{}", options).ok());
  EXPECT_EQ(error_of("{% for x in range(50) %}{% endfor %}", options).code, ErrorCode::TooLarge);
  options = {};
  options.limits.max_depth = 20;
  EXPECT_EQ(error_of("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", options).code,
            ErrorCode::TooLarge);
}

// Each of these reads a long string again and again and makes next to nothing: what is read counts,
// and so does the clock.
TEST(ChatTemplate, ReadingALongStringInALoopIsPaidFor) {
  constexpr std::string_view kReaders[] = {
      "s | length",
      "s.strip('a')",
      "s | trim('a')",
      "s.strip() == s",
      "s.find('b')",
      "s.rfind('b')",
      "s.count('b')",
      "'b' in s",
      "s == t",
      "s < t",
      "s[5]",
      "s[-1]",
      "s[1:2]",
      "s[::-1][0]",
      "s.isalpha()",
      "s.isupper()",
      "s is upper",
      "s.replace('b','')[0]",
      "s.split('b') | length",
      "s.splitlines() | length",
      "s.endswith(t)",
      "s.startswith('a', 1)",
      "s | int",
      "s | float",
      "s | wordcount",
      "s | upper | length",
      "s | title | length",
      "s.partition('b')[1]",
      "s.rpartition('b')[1]",
      "s.ljust(1)",
      "s.zfill(1)",
      "{s: 1}[t]",
      "d[s]",
      "d.get(s)",
      "[t] | unique | list | length",
      "[s, t] | max == s",
      "[s, t] | sort | length",
      "s | escape | length",
      "s | truncate(5)",
      "'%s' % s == t",
      "'{}'.format(s) == t",
      "s | tojson | length",
      "s | indent == t",
      "s.removeprefix('b') == t",
      "s | replace('b', 'c') == t",
      "s.capitalize() | length",
      "s | reverse | length",
      "s ~ 'x' == t",
      "s.lstrip('a') | length",
      "s.join(['x']) == t",
      "s in [t, t]",
      "s is eq t",
  };
  // 2,000 rounds take some ten thousand steps, and 200 million bytes of reading.
  const std::string head =
      "{% set s = 'a' * 100000 %}{% set t = 'a' * 99999 + 'b' %}{% set d = {t: 1} %}"
      "{% for i in range(2000) %}{% if ";
  RenderOptions options;
  options.limits.max_steps = 300'000;
  options.limits.max_work_bytes = 64U << 20;
  const std::string tail = " %}{% endif %}{% endfor %}";
  EXPECT_TRUE(render(head + "i == 5 and s" + tail, "{}", options).ok());
  for (const std::string_view reader : kReaders) {
    const Error error = error_of(head + std::string(reader) + tail, options);
    EXPECT_EQ(error.code, ErrorCode::TooLarge) << reader << ": " << error.message;
  }
}

TEST(ChatTemplate, TheClockAndAStopEndARendering) {
  const std::string_view endless =
      "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}";
  RenderOptions options;
  options.limit.deadline = std::chrono::steady_clock::now();
  const Error late = error_of(endless, options);
  EXPECT_EQ(late.code, ErrorCode::TooLarge);
  EXPECT_THAT(late.message, HasSubstr("longer than the time"));
  std::stop_source stop;
  stop.request_stop();
  options = {};
  options.limit.stop = stop.get_token();
  EXPECT_EQ(error_of(endless, options).code, ErrorCode::Cancelled);
}

TEST(ChatTemplate, OnlyDataCanBeReached) {
  EXPECT_EQ(
      render(
          "{{ x.__class__ is defined }}{{ ''.__class__ is defined }}{{ x['__len__'] is defined }}"
          "{{ range.__globals__ is defined }}{{ x.pop is defined }}{{ [].append is defined }}",
          "{\"x\": {\"a\": 1}}")
          .value(),
      "FalseFalseFalseFalseFalseFalse");
}

TEST(ChatTemplate, LargeIntegersAndDocumentsPassThrough) {
  EXPECT_EQ(render("{{ documents | tojson }}{{ n }}",
                   "{\"documents\":[{\"title\":\"T\",\"max\":18446744073709551615}],\"n\":-"
                   "9223372036854775808}")
                .value(),
            "[{\"title\": \"T\", \"max\": 18446744073709551615}]-9223372036854775808");
}

TEST(ChatTemplate, ManyThreadsRenderOneTemplate) {
  const ChatTemplate parsed =
      ChatTemplate::parse(
          "{% macro m(x) %}<{{ x.content }}>{% endmacro %}"
          "{% set ns = namespace(n=0) %}{% for x in messages %}{% set ns.n = ns.n + 1 %}"
          "{{ m(x) }}{% endfor %}{{ ns.n }}")
          .take();
  const json::Value shared = context("{\"messages\":[{\"content\":\"a\"},{\"content\":\"b\"}]}");
  std::vector<std::string> results(8);
  std::vector<std::thread> threads;
  for (std::string& result : results) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) result = parsed.render(shared, {}).value().text;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& result : results) EXPECT_EQ(result, "<a><b>2");
}

constexpr std::string_view kConversation =
    "{\"messages\":[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":\"U\"},"
    "{\"role\":\"assistant\",\"content\":\"A\"},{\"role\":\"user\",\"content\":\"V\"}],"
    "\"add_generation_prompt\":true,\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}";

TEST(BuiltinTemplates, RenderTheirFormats) {
  const auto prompt = [](std::string_view name) {
    return render(find_builtin_template(name).value(), kConversation).value();
  };
  EXPECT_EQ(
      prompt("chatml"),
      "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n"
      "<|im_start|>assistant\nA<|im_end|>\n<|im_start|>user\nV<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(prompt("llama2"),
            "<s>[INST] <<SYS>>\nS\n<</SYS>>\n\nU [/INST] A </s><s>[INST] V [/INST]");
  EXPECT_EQ(prompt("llama3"),
            "<s><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nU<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\nA<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nV<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
  EXPECT_EQ(prompt("mistral"), "<s>[INST] S\n\nU [/INST] A</s>[INST] V [/INST]");
  EXPECT_EQ(
      prompt("phi3"),
      "<|system|>\nS<|end|>\n<|user|>\nU<|end|>\n<|assistant|>\nA<|end|>\n<|user|>\nV<|end|>\n"
      "<|assistant|>\n");
  EXPECT_EQ(prompt("gemma"),
            "<s><start_of_turn>user\nS\n\nU<end_of_turn>\n<start_of_turn>model\nA<end_of_turn>\n"
            "<start_of_turn>user\nV<end_of_turn>\n<start_of_turn>model\n");
  EXPECT_EQ(
      prompt("zephyr"),
      "<|system|>\nS</s>\n<|user|>\nU</s>\n<|assistant|>\nA</s>\n<|user|>\nV</s>\n<|assistant|>\n");
  EXPECT_EQ(prompt("vicuna"), "<s>S\n\nUSER: U\nASSISTANT: A</s>\nUSER: V\nASSISTANT:");
  EXPECT_EQ(prompt("deepseek"), "<s>S\n\nUser: U\n\nAssistant: A</s>User: V\n\nAssistant:");
}

TEST(BuiltinTemplates, AreFoundByNameOnly) {
  EXPECT_EQ(builtin_template_names().size(), 9U);
  EXPECT_FALSE(find_builtin_template("nope").has_value());
}

}  // namespace
}  // namespace llorch::jinja
