// Lets people write flags in either of the two usual ways, --state_dir and --state-dir.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace trainyard {

// Joins the words of a flag's name: hyphens in the help of the client, underscores in that of the
// daemons.
enum class FlagStyle : char { kHyphens = '-', kUnderscores = '_' };

// Returns a flag in the given style: "--state_dir=/a_b" becomes "--state-dir=/a_b". Words that are
// no long flags come back unchanged.
std::string FlagInStyle(absl::string_view arg, FlagStyle style);

// Returns arguments in the order in which they were given, all flags up to "--" in the given style.
std::vector<std::string> FlagsInStyle(const std::vector<std::string>& args, FlagStyle style);

// Returns the arguments of main, without the program's name, in the order that CLI11 takes them in:
// the last one first.
std::vector<std::string> ReversedArgs(int argc, char** argv, FlagStyle style);

}  // namespace trainyard
