// Score sheets for people.
#include <algorithm>

#include "fleet/decide.h"

namespace llorch::fleet {
namespace {

constexpr std::size_t kLinesInText = 8;
constexpr std::size_t kNamesOfRefusal = 4;  // further ones are only counted

// "anna worker-cpu-0", "anna load on device 0".
std::string name_candidate(const Fleet& fleet, const ScoreLine& line) {
  const std::string host = fleet.hosts[line.host].id + ' ';
  if (line.worker == kNone)
    return host + "load on device " + std::to_string(fleet.devices[line.device].number);
  const WorkerId& worker = fleet.workers[line.worker].id;
  return host + (worker.empty() ? "(loading)" : worker);
}

}  // namespace

std::vector<std::string> name_refused(const Fleet& fleet, const ScoreSheet& sheet,
                                      Refusal refusal) {
  std::vector<std::string> names;
  for (const ScoreLine& line : sheet.refused) {
    if (line.refusal != refusal) continue;
    if (names.size() == kNamesOfRefusal) break;
    names.push_back(name_candidate(fleet, line));
  }
  return names;
}

std::string describe_refusal(const Fleet& fleet, const ScoreSheet& sheet, Refusal refusal,
                             const std::vector<std::string>& labels) {
  std::string text(name(refusal));
  if (refusal != Refusal::Labels) return text;
  std::string lacking;
  for (const std::string& label : labels) {
    const std::uint64_t bit = needed_labels(fleet, {label});
    const bool is_lacking =
        std::any_of(sheet.refused.begin(), sheet.refused.end(), [&](const ScoreLine& line) {
          return line.refusal == refusal && (bit & ~fleet.hosts[line.host].labels) != 0;
        });
    if (is_lacking) lacking += (lacking.empty() ? ": " : ", ") + label;
  }
  return text + lacking;
}

std::string sheet_text(const Fleet& fleet, const ScoreSheet& sheet,
                       const std::vector<std::string>& labels) {
  const auto ms = [](float value) { return std::to_string(static_cast<std::int64_t>(value)); };
  std::string text;
  for (std::size_t i = 0; i < std::min(sheet.best.size(), kLinesInText); ++i) {
    const ScoreLine& line = sheet.best[i];
    text += name_candidate(fleet, line) + ": finish " + ms(line.finish_ms) + " = wait " +
            ms(line.wait_ms) + " + load " + ms(line.load_ms) + " + prefill " + ms(line.prefill_ms) +
            " + decode " + ms(line.decode_ms) + " + harm " + ms(line.harm_ms) +
            (line.bonus_ms < 0 ? " - " + ms(-line.bonus_ms) + " ms for the same arithmetic\n"
                               : " ms\n");
  }
  if (sheet.scored > kLinesInText)
    text += std::to_string(sheet.scored - kLinesInText) + " more candidates\n";
  for (std::size_t i = 1; i < kRefusals; ++i) {
    if (sheet.refusals[i] == 0) continue;
    text += std::to_string(sheet.refusals[i]) + " refused: ";
    text += describe_refusal(fleet, sheet, static_cast<Refusal>(i), labels);
    const std::vector<std::string> names = name_refused(fleet, sheet, static_cast<Refusal>(i));
    for (std::size_t n = 0; n < names.size(); ++n) text += (n == 0 ? " (" : ", ") + names[n];
    if (!names.empty()) text += sheet.refusals[i] > names.size() ? ", …)" : ")";
    text += '\n';
  }
  return text.empty() ? "no worker and no device for this model\n" : text;
}

}  // namespace llorch::fleet
