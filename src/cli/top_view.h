// What `llorch top` shows and what its keys mean: no terminal is touched here. Private to cli/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cli/fleet_tables.h"
#include "contract/fleet_api.h"

namespace llorch::cli {

struct TopAction {
  enum class Kind : std::uint8_t { Quit, Cancel };
  Kind kind = Kind::Quit;
  std::string job;  // Cancel
};

class TopView {
 public:
  void take(contract::FleetStatus status);
  void note(std::string text);  // a line at the end, until the next key

  // Keys as a terminal sends them.
  std::vector<TopAction> press(std::string_view keys);

  // At most `height` rows of the terminal: lines that it breaks count as several.
  std::string render(std::string_view url, const View& view, std::size_t height) const;

 private:
  enum class Order : std::uint8_t { Newest, Tokens, Model, State };
  void sort();
  void select(int by);

  contract::FleetStatus status_;
  Order order_ = Order::Newest;
  std::string selected_;  // a job
  bool asks_ = false;     // whether to cancel it
  bool shows_hosts_ = true;
  std::string note_;
};

}  // namespace llorch::cli
