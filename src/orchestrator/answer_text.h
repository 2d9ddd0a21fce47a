// What an answer looks like as events: notices beside it, its end, and what is read out of those
// that were stored. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "fleet/effects.h"
#include "fleet/ids.h"
#include "fleet/records.h"
#include "orchestrator/answer_reader.h"

namespace llorch::orchestrator {

// The line that gives an event its position.
std::string id_line(const fleet::Position& position);

// The texts of what is told beside the answer, exactly as on the wire. On OpenAI's endpoints they
// are comments: their clients know no other events. Those who follow a task do.
std::string notice_text(const AnswerForm& form, fleet::Holder holder,
                        const fleet::JobNotice& notice);

// What is told when a job has ended: the end that its worker wrote, where it did, or an error.
std::string end_text_of(const AnswerForm& form, const fleet::EndedRecord& end,
                        const std::string& workers);

// Where the end of an answer begins in the events of its last group; their size where it has none.
std::size_t find_end(std::string_view events);

// What the events of a stored group say about the choices.
void note_events(std::string_view events, AnswerProgress& progress);

// Of the end that a worker wrote.
std::string stop_reason_of(std::string_view end_text);

}  // namespace llorch::orchestrator
