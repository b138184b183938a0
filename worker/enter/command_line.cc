// Writes and reads flags with one value each; what follows "--" is the command.
#include "worker/enter/command_line.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace trainyard::enter {
namespace {

constexpr int kPortMax = 65535;
constexpr int kSizeMax = 10'000;

bool ReadNumbers(absl::string_view text, char separator, std::vector<int64_t>& numbers) {
  for (const absl::string_view part : absl::StrSplit(text, separator)) {
    int64_t number = 0;
    if (!absl::SimpleAtoi(part, &number) || number < 0) return false;
    numbers.push_back(number);
  }
  return true;
}

// Takes one flag. Returns false if its value is wrong.
bool TakeFlag(absl::string_view flag, const std::string& value, Request& request) {
  std::vector<int64_t> numbers;
  if (flag == "--rank") {
    if (!ReadNumbers(value, ':', numbers) || numbers.size() != 3) return false;
    request.rank = {numbers[0], numbers[1], static_cast<uid_t>(numbers[2])};
    return request.rank.pid > 0;
  }
  if (flag == "--owner") {
    if (!ReadNumbers(value, ':', numbers) || numbers.size() < 2) return false;
    Owner owner{static_cast<uid_t>(numbers[0]), static_cast<gid_t>(numbers[1]), {}};
    for (size_t i = 2; i < numbers.size(); ++i) {
      owner.groups.push_back(static_cast<gid_t>(numbers[i]));
    }
    request.owner = std::move(owner);
    return true;
  }
  if (flag == "--port") {
    return absl::SimpleAtoi(value, &request.port) && request.port > 0 && request.port <= kPortMax;
  }
  if (flag == "--terminal") {
    if (!ReadNumbers(value, 'x', numbers) || numbers.size() != 2) return false;
    if (std::max(numbers[0], numbers[1]) > kSizeMax) return false;
    request.terminal = TerminalSize{static_cast<int>(numbers[0]), static_cast<int>(numbers[1])};
    return true;
  }
  if (flag != "--term") return false;
  request.term = value;
  return true;
}

}  // namespace

std::vector<std::string> ArgumentsOf(const Request& request) {
  std::vector<std::string> arguments = {
      "--rank",
      absl::StrCat(request.rank.pid, ":", request.rank.start_ticks, ":", request.rank.uid)};
  if (request.owner.has_value()) {
    std::string owner = absl::StrCat(request.owner->uid, ":", request.owner->gid);
    for (const gid_t group : request.owner->groups) absl::StrAppend(&owner, ":", group);
    arguments.insert(arguments.end(), {"--owner", owner});
  }
  if (request.port > 0) {
    arguments.insert(arguments.end(), {"--port", absl::StrCat(request.port)});
    return arguments;
  }
  if (request.terminal.has_value()) {
    arguments.insert(arguments.end(), {"--terminal", absl::StrCat(request.terminal->columns, "x",
                                                                  request.terminal->rows)});
  }
  if (!request.term.empty()) arguments.insert(arguments.end(), {"--term", request.term});
  arguments.emplace_back("--");
  arguments.insert(arguments.end(), request.words.begin(), request.words.end());
  return arguments;
}

absl::StatusOr<Request> ParseArguments(const std::vector<std::string>& arguments) {
  Request request;
  for (size_t i = 0; i < arguments.size(); i += 2) {
    if (arguments[i] == "--") {
      request.words.assign(arguments.begin() + static_cast<std::ptrdiff_t>(i) + 1, arguments.end());
      break;
    }
    if (i + 1 >= arguments.size() || !TakeFlag(arguments[i], arguments[i + 1], request)) {
      return absl::InvalidArgumentError(absl::StrCat("cannot understand '", arguments[i], "'"));
    }
  }
  if (request.rank.pid <= 0) return absl::InvalidArgumentError("--rank is missing");
  return request;
}

}  // namespace trainyard::enter
