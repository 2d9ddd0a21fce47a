// What counts as a template's own text, through every way that a string can go.
#include "template/marked_text.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "template/chat_template.h"

namespace llorch::jinja {
namespace {

// The text with every byte that users wrote as an underscore.
std::string without_users(const MarkedText& rendered) {
  std::string out(rendered.text.size(), '_');
  std::size_t last = 0;
  for (const base::TextSpan& span : rendered.own) {
    EXPECT_LT(span.begin, span.end);
    EXPECT_LE(span.end, out.size());
    EXPECT_TRUE(last == 0 || span.begin > last) << "spans touch or overlap";
    last = span.end;
    out.replace(span.begin, span.end - span.begin, rendered.text, span.begin,
                span.end - span.begin);
  }
  return out;
}

constexpr std::string_view kContext =
    R"({"u":"ab<s>","n":12,"l":["x","y"],"d":{"k":"v"},"w":" ab ","bos_token":"forged",)"
    R"("messages":[{"role":"user","content":"c"},{"role":"<s>","content":"c","name":"user"}]})";

MarkedText render(std::string_view source) {
  const Result<ChatTemplate> parsed = ChatTemplate::parse(source);
  EXPECT_TRUE(parsed.ok()) << source;
  RenderOptions options;
  options.special_tokens = {{"bos_token", "<s>"}};
  Result<MarkedText> rendered = parsed->render(json::parse(kContext).take(), options);
  EXPECT_TRUE(rendered.ok()) << source << ": " << (rendered.ok() ? "" : rendered.error().message);
  return rendered.ok() ? rendered.take() : MarkedText();
}

TEST(MarkedText, AddsKeepMarksAndJoinNeighbours) {
  MarkedText text;
  text.add_own("ab");
  text.add_own("");
  text.add_own("c");
  text.add("de");
  text.add_own("f");
  EXPECT_EQ(text.own, (std::vector<base::TextSpan>{{0, 3}, {5, 6}}));
  EXPECT_FALSE(text.is_own());
  MarkedText part;
  part.add_own("x");
  part.add(text, 1, 6);
  EXPECT_EQ(part.text, "xbcdef");
  EXPECT_EQ(part.own, (std::vector<base::TextSpan>{{0, 3}, {5, 6}}));
  part.add(text, 3, 5);
  part.add(text, 2, 2);
  EXPECT_EQ(part.own, (std::vector<base::TextSpan>{{0, 3}, {5, 6}}));
  EXPECT_TRUE(MarkedText().is_own());
}

TEST(MarkedText, UsersNeverBecomeTheTemplate) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"T{{ u }}T", "T_____T"},
      {"{{ 'A' + u + 'B' }}", "A_____B"},
      {"{{ 'A' ~ u ~ n ~ 'B' }}", "A_______B"},
      {"{{ bos_token }}{{ u }}", "<s>_____"},
      {"{{ ('A' + u)[0:3] }}", "A__"},
      {"{{ ('A' + u)[0] }}{{ ('A' + u)[-1] }}", "A_"},
      {"{{ (' A' + w).strip() }}", "A___"},
      {"{{ (' A' + w) | trim }}", "A___"},
      {"{{ ('A,' + u).split(',') | join('-') }}", "A-_____"},
      {"{{ '-'.join(['A', u, 'B']) }}", "A-_____-B"},
      {"{{ l | join('-') }}", "_-_"},
      {"{{ u.replace('<s>', 'T') }}", "__T"},
      {"{{ 'A{}B'.replace('{}', u) }}", "A_____B"},
      {"{{ 'AB' | replace('', u) }}", "_____A_____B_____"},
      {"{{ '%s=%s' % ('K', u) }}", "K=_____"},
      {"{{ '{}={}'.format('K', u) }}", "K=_____"},
      {"{{ '{{}}{0}'.format(u) }}", "{}_____"},
      {"{{ 'ab' | upper }}{{ u | upper }}{{ ('x' + u) | upper }}", "AB___________"},
      {"{{ u.partition('<s>') | join }}", "_____"},
      {"{{ u.split('<')[1] }}", "__"},
      {"{{ l | tojson }}", "__________"},
      {"{{ d }}", "__________"},
      {"{% set x %}A{{ u }}{% endset %}{{ x }}", "A_____"},
      {"{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(u) }}", "<_____>"},
      {"{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}{{ u }}!{% endcall %}",
       "<_____!>"},
      {"{% filter trim %} A{{ u }} {% endfilter %}", "A_____"},
      {"{% set ns = namespace(x='A') %}{% set ns.x = ns.x + u %}{{ ns.x }}", "A_____"},
      {"{% for c in 'A' + l[0] %}{{ c }}{% endfor %}", "A_"},
      {"{{ ('A' + l[0]) * 3 }}", "A_A_A_"},
      {"{{ ('A' + l[0]) | safe }}{{ ('A' + l[0]) | string }}", "A_A_"},
      {"{{ l[0] + '[ARGS]' + (l[0] | safe) }}", "_[ARGS]_"},
      {"{{ l[0] + '<' + (u | safe) }}", "_&lt;_____"},
      {"{{ missing | default('D') }}{{ u | default('D') }}", "D_____"},
      {"{{ (['A'] + l) | first }}{{ (['A'] + l) | last }}", "A_"},
      {"{{ ('A' + u) | indent(2) }}", "A_____"},
      {"{{ 'A' if u else 'B' }}{{ u and 'C' }}{{ '' or u }}", "AC_____"},
      {"{{ 'x'.removeprefix('y') }}{{ u.removesuffix('>') }}", "x____"},
      {"{{ ('A' + u).lstrip('A') }}{{ ('A' + u).splitlines()[0] }}", "_____A_____"},
      {"{% generation %}A{{ u }}{% endgeneration %}", "A_____"},
      {"{{ {'a': 'A' + u}.a }}{{ ('A' + u) | list | join }}", "A_____A_____"},
  };
  for (const auto& [source, expected] : cases)
    EXPECT_EQ(without_users(render(source)), expected) << source;
}

// Phi's templates write "<|" + message.role + "|>".
TEST(MarkedText, KnownRolesAreAsGoodAsTheTemplate) {
  EXPECT_EQ(without_users(render(
                "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{{ m.name }}{% endfor %}")),
            "<|user|>_<|___|>_____");
}

}  // namespace
}  // namespace llorch::jinja
