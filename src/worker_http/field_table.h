// The fields of the request bodies that are the worker's own. Private to worker_http/.
#pragma once

#include <span>

#include "openai/field_table.h"

namespace llorch::worker_http {

using openai::FieldSpec;
using openai::Treatment;

std::span<const FieldSpec> execute_fields();
std::span<const FieldSpec> cancel_fields();
std::span<const FieldSpec> shutdown_fields();
std::span<const FieldSpec> tokenize_fields();
std::span<const FieldSpec> detokenize_fields();

}  // namespace llorch::worker_http
