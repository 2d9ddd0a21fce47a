// Templates of the well-known prompt formats, for models that come without one.
#include <algorithm>
#include <iterator>

#include "template/chat_template.h"

namespace llorch::jinja {
namespace {

struct Builtin {
  std::string_view name;
  std::string_view source;
};

constexpr std::string_view kChatml = R"({%- for message in messages -%}
{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|im_start|>assistant\n' }}
{%- endif -%}
)";

constexpr std::string_view kLlama2 = R"({%- set ns = namespace(system='') -%}
{%- for message in messages -%}
{%- if message.role == 'system' -%}
{%- set ns.system = '<<SYS>>\n' + message.content + '\n<</SYS>>\n\n' -%}
{%- elif message.role == 'user' -%}
{{ bos_token + '[INST] ' + ns.system + message.content + ' [/INST]' }}
{%- set ns.system = '' -%}
{%- elif message.role == 'assistant' -%}
{{ ' ' + message.content + ' ' + eos_token }}
{%- else -%}
{{ raise_exception('the llama2 format has no role ' + message.role) }}
{%- endif -%}
{%- endfor -%}
)";

constexpr std::string_view kLlama3 = R"({{- bos_token -}}
{%- for message in messages -%}
{{ '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' + message.content | trim + '<|eot_id|>' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif -%}
)";

constexpr std::string_view kMistral = R"({{- bos_token -}}
{%- set ns = namespace(system='') -%}
{%- for message in messages -%}
{%- if message.role == 'system' -%}
{%- set ns.system = message.content + '\n\n' -%}
{%- elif message.role == 'user' -%}
{{ '[INST] ' + ns.system + message.content + ' [/INST]' }}
{%- set ns.system = '' -%}
{%- elif message.role == 'assistant' -%}
{{ ' ' + message.content + eos_token }}
{%- else -%}
{{ raise_exception('the mistral format has no role ' + message.role) }}
{%- endif -%}
{%- endfor -%}
)";

constexpr std::string_view kPhi3 = R"({%- for message in messages -%}
{{ '<|' + message.role + '|>\n' + message.content + '<|end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|assistant|>\n' }}
{%- endif -%}
)";

constexpr std::string_view kGemma = R"({{- bos_token -}}
{%- set ns = namespace(system='') -%}
{%- for message in messages -%}
{%- if message.role == 'system' -%}
{%- set ns.system = message.content + '\n\n' -%}
{%- else -%}
{%- set role = 'model' if message.role == 'assistant' else message.role -%}
{{ '<start_of_turn>' + role + '\n' + ns.system + message.content | trim + '<end_of_turn>\n' }}
{%- set ns.system = '' -%}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<start_of_turn>model\n' }}
{%- endif -%}
)";

constexpr std::string_view kZephyr = R"({%- for message in messages -%}
{{ '<|' + message.role + '|>\n' + message.content + eos_token + '\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|assistant|>\n' }}
{%- endif -%}
)";

constexpr std::string_view kVicuna = R"({{- bos_token -}}
{%- for message in messages -%}
{%- if message.role == 'system' -%}
{{ message.content + '\n\n' }}
{%- elif message.role == 'user' -%}
{{ 'USER: ' + message.content + '\n' }}
{%- else -%}
{{ 'ASSISTANT: ' + message.content + eos_token + '\n' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ 'ASSISTANT:' }}
{%- endif -%}
)";

constexpr std::string_view kDeepseek = R"({{- bos_token -}}
{%- for message in messages -%}
{%- if message.role == 'system' -%}
{{ message.content + '\n\n' }}
{%- elif message.role == 'user' -%}
{{ 'User: ' + message.content + '\n\n' }}
{%- else -%}
{{ 'Assistant: ' + message.content + eos_token }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ 'Assistant:' }}
{%- endif -%}
)";

constexpr Builtin kBuiltins[] = {
    {"chatml", kChatml}, {"deepseek", kDeepseek}, {"gemma", kGemma},
    {"llama2", kLlama2}, {"llama3", kLlama3},     {"mistral", kMistral},
    {"phi3", kPhi3},     {"vicuna", kVicuna},     {"zephyr", kZephyr},
};

}  // namespace

std::optional<std::string_view> find_builtin_template(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kBuiltins), std::end(kBuiltins),
                                         [&](const Builtin& b) { return b.name == name; });
  if (found == std::end(kBuiltins)) return std::nullopt;
  return found->source;
}

std::vector<std::string_view> builtin_template_names() {
  std::vector<std::string_view> names;
  for (const Builtin& builtin : kBuiltins) names.push_back(builtin.name);
  return names;
}

}  // namespace llorch::jinja
