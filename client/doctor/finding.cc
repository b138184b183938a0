// Makes findings.
#include "client/doctor/finding.h"

#include <iterator>
#include <utility>

namespace trainyard::doctor {

Finding Ok(std::string check, std::string message) {
  return {std::move(check), Level::kOk, std::move(message), ""};
}

Finding Warning(std::string check, std::string message, std::string advice) {
  return {std::move(check), Level::kWarning, std::move(message), std::move(advice)};
}

Finding Problem(std::string check, std::string message, std::string advice) {
  return {std::move(check), Level::kProblem, std::move(message), std::move(advice)};
}

const char* LevelText(Level level) {
  switch (level) {
    case Level::kOk:
      return "ok";
    case Level::kWarning:
      return "warning";
    case Level::kProblem:
      break;
  }
  return "problem";
}

void Append(Findings& findings, Findings more) {
  findings.insert(findings.end(), std::make_move_iterator(more.begin()),
                  std::make_move_iterator(more.end()));
}

}  // namespace trainyard::doctor
