// secrets sets, lists and removes the user's secrets, which programs find as files.
#include <istream>
#include <iterator>
#include <ostream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/commands/verbs.h"
#include "client/output/silence.h"
#include "client/output/table.h"
#include "client/output/text.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"

namespace trainyard::commands {
namespace {

// The server has the same limit.
constexpr int64_t kSecretFileBytesMax = int64_t{64} << 10;

struct SetSecretOptions {
  std::string name;
  std::string from;
  std::string file;
};

struct RemoveSecretsOptions {
  std::vector<std::string> names;
};

// Asks at the terminal, where a value is one line.
absl::StatusOr<std::string> AskForValue(const Context& context, const std::string& name) {
  if (!context.in_is_terminal) {
    return absl::InvalidArgumentError(
        "there is no terminal to ask for the value; give --file FILE, or - for the standard input");
  }
  std::string value;
  context.interrupt.AllowExit(true);
  {
    const output::Silence silence;
    context.err << "Value of " << name << " (it is not shown): " << std::flush;
    std::getline(context.in, value);
  }
  context.interrupt.AllowExit(false);
  context.err << "\n";
  return value;
}

absl::StatusOr<std::string> ReadSecret(const Context& context, const SetSecretOptions& options) {
  const bool is_from_input = options.from == "-" || options.file == "-";
  if (!options.from.empty() && options.from != "-") {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", options.from.substr(0, 3),
        "...' is no '-': a value on the command line would be seen "
        "by others and kept by the shell; give --file FILE, or leave it out to be asked"));
  }
  if (is_from_input) {
    std::string value;
    char buffer[4096];
    while (value.size() <= static_cast<size_t>(kSecretFileBytesMax) && context.in.good()) {
      context.in.read(buffer, sizeof buffer);
      value.append(buffer, static_cast<size_t>(context.in.gcount()));
    }
    return value;
  }
  if (!options.file.empty()) return ReadFile(options.file, kSecretFileBytesMax + 1);
  return AskForValue(context, options.name);
}

Result SetSecret(const Context& context, const SetSecretOptions& options) {
  TY_ASSIGN_OR_RETURN(std::string value, ReadSecret(context, options));
  if (value.empty()) {
    return absl::InvalidArgumentError(
        "the value is empty; `trainyard secrets rm` removes a secret");
  }
  if (value.size() > static_cast<size_t>(kSecretFileBytesMax)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the value has more than ", kSecretFileBytesMax >> 10, " KiB"));
  }
  v1::SetSecretRequest request;
  request.set_name(options.name);
  request.set_value(std::move(value));
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(const v1::Secret secret,
                      link->Call(&v1::SecretService::Stub::SetSecret, request));
  context.Say(absl::StrCat("secret ", secret.name(), " is set (", secret.size(),
                           " bytes); programs with `secrets: [", secret.name(),
                           "]` find it in $TRAINYARD_SECRETS/", secret.name()));
  return link::kOk;
}

Result ListSecrets(const Context& context) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(const v1::ListSecretsResponse response,
                      link->Call(&v1::SecretService::Stub::ListSecrets, v1::ListSecretsRequest()));
  std::vector<std::string> names;
  for (const v1::Secret& secret : response.secrets()) names.push_back(secret.name());
  if (PrintMessages(context, response.secrets(), names)) return link::kOk;
  if (response.secrets().empty()) {
    context.Say("no secrets; `trainyard secrets set NAME` makes one");
    return link::kOk;
  }
  const absl::Time now = context.clock.Now();
  output::Table table({{"SECRET"}, {"MADE"}, {"SET"}, {"BYTES"}});
  for (const v1::Secret& secret : response.secrets()) {
    table.AddRow({secret.name(), output::AgeText(now - output::ToTime(secret.create_time())),
                  output::AgeText(now - output::ToTime(secret.update_time())),
                  absl::StrCat(secret.size())});
  }
  context.out << table.Render();
  return link::kOk;
}

Result RemoveSecrets(const Context& context, const RemoveSecretsOptions& options) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  for (const std::string& name : options.names) {
    v1::DeleteSecretRequest request;
    request.set_name(name);
    TY_RETURN_IF_ERROR(link->Call(&v1::SecretService::Stub::DeleteSecret, request).status());
    context.Say(absl::StrCat("secret ", name, " is removed"));
  }
  return link::kOk;
}

}  // namespace

void AddSecrets(VerbTable& verbs) {
  verbs.Group("secrets", "Secrets for your programs, such as tokens and passwords");
  verbs.Add<SetSecretOptions>(
      "secrets set", "Set a secret, from a file or asked at the terminal", "hf_token",
      [](client::Flags& flags, SetSecretOptions& options) {
        flags.Word("NAME", options.name, "Its name").Required();
        flags.Word("INPUT", options.from, "- to read the value from the standard input");
        flags.Value("--file", options.file, "Read the value from a file, byte for byte");
      },
      SetSecret);
  verbs.Add("secrets ls", "List your secrets, without their values", "", ListSecrets);
  verbs.Add<RemoveSecretsOptions>(
      "secrets rm", "Remove secrets for good", "hf_token",
      [](client::Flags& flags, RemoveSecretsOptions& options) {
        flags.Words("NAME", options.names, "The secrets").Required();
      },
      RemoveSecrets);
}

}  // namespace trainyard::commands
