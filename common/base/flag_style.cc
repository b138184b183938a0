// Only the name of a flag is changed. What follows its equals sign is a value, such as a path.
#include "common/base/flag_style.h"

#include <algorithm>

#include "absl/strings/match.h"

namespace trainyard {

std::string FlagInStyle(absl::string_view arg, FlagStyle style) {
  std::string flag(arg);
  if (!absl::StartsWith(arg, "--")) return flag;
  const auto is_joint = [](char c) { return c == '-' || c == '_'; };
  std::replace_if(flag.begin() + 2, std::find(flag.begin() + 2, flag.end(), '='), is_joint,
                  static_cast<char>(style));
  return flag;
}

std::vector<std::string> FlagsInStyle(const std::vector<std::string>& args, FlagStyle style) {
  std::vector<std::string> changed = args;
  const auto end = std::find(changed.begin(), changed.end(), "--");
  std::transform(changed.begin(), end, changed.begin(),
                 [style](const std::string& arg) { return FlagInStyle(arg, style); });
  return changed;
}

std::vector<std::string> ReversedArgs(int argc, char** argv, FlagStyle style) {
  std::vector<std::string> args =
      FlagsInStyle(std::vector<std::string>(argv + std::min(argc, 1), argv + argc), style);
  std::reverse(args.begin(), args.end());
  return args;
}

}  // namespace trainyard
