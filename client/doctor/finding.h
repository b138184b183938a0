// Defines what `trainyard doctor` finds.
#pragma once

#include <string>
#include <vector>

namespace trainyard::doctor {

enum class Level { kOk, kWarning, kProblem };

struct Finding {
  std::string check;  // a noun for what was looked at, such as "clock"
  Level level = Level::kOk;
  std::string message;  // one sentence or two
  std::string advice;   // says what to do; empty if nothing is to be done

  friend bool operator==(const Finding&, const Finding&) = default;
};

using Findings = std::vector<Finding>;

Finding Ok(std::string check, std::string message);
Finding Warning(std::string check, std::string message, std::string advice);
Finding Problem(std::string check, std::string message, std::string advice);

// Returns "ok", "warning" or "problem".
const char* LevelText(Level level);
// Appends the findings to the others.
void Append(Findings& findings, Findings more);

}  // namespace trainyard::doctor
