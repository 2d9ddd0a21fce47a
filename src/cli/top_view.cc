#include "cli/top_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/terminal.h"
#include "base/utf8.h"

namespace llorch::cli {
namespace {

constexpr std::array<std::string_view, 4> kOrders = {"newest", "tokens", "model", "state"};

// Rows that a line takes on a terminal of so many columns; its colours take none.
std::size_t rows_of(std::string_view line, std::size_t width) {
  std::size_t columns = base::count_scalars(line);
  for (std::size_t at = line.find('\x1b'); at != std::string_view::npos;
       at = line.find('\x1b', at + 1))
    columns -= line.find('m', at) - at + 1;
  return std::max<std::size_t>(1, (columns + width - 1) / std::max<std::size_t>(1, width));
}

// Text as its first lines, as many as `rows` hold.
std::string first_lines(const std::string& text, std::size_t rows, std::size_t width) {
  std::size_t end = 0;
  while (end < text.size()) {
    const std::size_t next = std::min(text.find('\n', end), text.size());
    const std::size_t taken = rows_of(std::string_view(text).substr(end, next - end), width);
    if (taken > rows) break;
    rows -= taken;
    end = std::min(next + 1, text.size());
  }
  return text.substr(0, end);
}

// The line of the table that names the job, marked.
std::string mark_line(const std::string& text, const std::string& job, bool color) {
  std::string marked;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    const bool is_it = !job.empty() && line.find(job) != std::string::npos;
    marked +=
        (is_it ? "> " : "  ") + (is_it ? base::paint(line, base::Color::Bold, color) : line) + "\n";
    begin = end + 1;
  }
  return marked;
}

}  // namespace

void TopView::take(contract::FleetStatus status) {
  status_ = std::move(status);
  sort();
  const auto is_it = [this](const contract::TaskView& task) { return task.job_id == selected_; };
  if (std::any_of(status_.tasks.begin(), status_.tasks.end(), is_it)) return;
  asks_ = false;  // it has ended meanwhile
  selected_ = status_.tasks.empty() ? "" : status_.tasks.front().job_id;
}

void TopView::note(std::string text) {
  note_ = std::move(text);
}

void TopView::sort() {
  const auto before = [this](const contract::TaskView& a, const contract::TaskView& b) {
    switch (order_) {
      case Order::Newest:
        return a.submitted_at > b.submitted_at;
      case Order::Tokens:
        return a.tokens_out > b.tokens_out;
      case Order::Model:
        return a.model < b.model;
      case Order::State:
        return a.status < b.status;
    }
    return false;
  };
  std::stable_sort(status_.tasks.begin(), status_.tasks.end(), before);
}

void TopView::select(int by) {
  const auto& tasks = status_.tasks;
  if (tasks.empty()) return;
  const auto at = std::find_if(tasks.begin(), tasks.end(), [this](const contract::TaskView& task) {
    return task.job_id == selected_;
  });
  const auto index = at == tasks.end() ? 0 : static_cast<int>(at - tasks.begin());
  const int next = std::clamp(index + by, 0, static_cast<int>(tasks.size()) - 1);
  selected_ = tasks[static_cast<std::size_t>(next)].job_id;
}

std::vector<TopAction> TopView::press(std::string_view keys) {
  std::vector<TopAction> actions;
  if (!keys.empty()) note_.clear();
  while (!keys.empty()) {
    const bool is_up = keys.starts_with("\x1b[A") || keys.starts_with("\x1bOA");
    const bool is_down = keys.starts_with("\x1b[B") || keys.starts_with("\x1bOB");
    const char key = is_up ? 'k' : is_down ? 'j' : keys.front();
    keys.remove_prefix(is_up || is_down ? 3 : 1);
    if (asks_) {
      asks_ = false;
      if (key == 'y') actions.push_back({TopAction::Kind::Cancel, selected_});
      continue;
    }
    if (key == 'q') actions.push_back({TopAction::Kind::Quit, ""});
    if (key == 'k') select(-1);
    if (key == 'j') select(+1);
    if (key == 'c') asks_ = !selected_.empty();
    if (key == 'p') shows_hosts_ = !shows_hosts_;
    if (key == 's') {
      order_ = static_cast<Order>((static_cast<std::size_t>(order_) + 1) % kOrders.size());
      sort();
    }
  }
  return actions;
}

std::string TopView::render(std::string_view url, const View& view, std::size_t height) const {
  contract::FleetStatus house = status_;
  house.tasks.clear();
  house.models.clear();
  if (!shows_hosts_) {
    house.hosts.clear();
    house.workers.clear();
  }
  std::string text = shows_hosts_
                         ? status_text(house, url, view)
                         : fmt::format("{} queued, {} running\n", house.queued, house.running);
  text += "\n";
  text += status_.tasks.empty() ? "no jobs\n"
                                : mark_line(jobs_text(status_.tasks, view), selected_, view.color);
  std::string last = fmt::format("sorted by {}; s sorts, c cancels, p hosts, q ends",
                                 kOrders[static_cast<std::size_t>(order_)]);
  if (!note_.empty()) last = base::printable(note_);
  if (asks_) last = fmt::format("cancel {}? y: yes, any other key: no", base::printable(selected_));
  const std::size_t below = 1 + rows_of(last, view.width);
  const std::size_t room = height > below ? height - below : 1;
  return first_lines(text, room, view.width) + "\n" +
         base::paint(last, base::Color::Dim, view.color);
}

}  // namespace llorch::cli
