// notify says to whom word of the user's jobs goes, and what became of it.
#include <ostream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/commands/verbs.h"
#include "client/output/table.h"
#include "client/output/text.h"
#include "common/base/status_macros.h"

namespace trainyard::commands {
namespace {

// A test waits for a receiver, which may be slow.
constexpr absl::Duration kTestTimeout = absl::Seconds(60);

struct AddTargetOptions {
  std::string webhook;
  std::string mail;
  std::string on;
  std::string name;
};

struct TargetOptions {
  std::string name;
};

struct RemoveTargetsOptions {
  std::vector<std::string> names;
};

struct DeliveriesOptions {
  std::string target;
  int limit = 0;
};

std::string EventWord(int event) {
  const std::string name = v1::NotifyEvent_Name(static_cast<v1::NotifyEvent>(event));
  return event == v1::NOTIFY_EVENT_UNSPECIFIED
             ? "test"
             : absl::AsciiStrToLower(name.substr(sizeof("NOTIFY_EVENT_") - 1));
}

std::string EventWords(const v1::NotifyTarget& target) {
  std::vector<std::string> words;
  for (const int event : target.events()) words.push_back(EventWord(event));
  return absl::StrJoin(words, ",");
}

std::string AddressOf(const v1::NotifyTarget& target) {
  return target.webhook().empty() ? target.mail() : target.webhook();
}

std::string DeliveryStateWord(v1::DeliveryState state) {
  switch (state) {
    case v1::DELIVERY_STATE_DELIVERED:
      return "delivered";
    case v1::DELIVERY_STATE_GIVEN_UP:
      return "given up";
    default:
      return "waiting";
  }
}

std::string LastDelivery(const v1::NotifyTarget& target, absl::Time now) {
  if (!target.has_last_delivery()) return "-";
  const v1::Delivery& last = target.last_delivery();
  return absl::StrCat(EventWord(last.event()), " of ", last.job(), " ",
                      output::AgeText(now - output::ToTime(last.create_time())),
                      " ago: ", DeliveryStateWord(last.state()),
                      last.result().empty() ? "" : absl::StrCat(" (", last.result(), ")"));
}

Result AddTarget(const Context& context, const AddTargetOptions& options) {
  v1::AddTargetRequest request;
  v1::NotifyTarget& target = *request.mutable_target();
  target.set_name(options.name);
  target.set_webhook(options.webhook);
  target.set_mail(options.mail);
  for (const absl::string_view word : absl::StrSplit(options.on, ',', absl::SkipEmpty())) {
    v1::NotifyEvent event = v1::NOTIFY_EVENT_UNSPECIFIED;
    if (!v1::NotifyEvent_Parse(
            absl::StrCat("NOTIFY_EVENT_", absl::AsciiStrToUpper(absl::StripAsciiWhitespace(word))),
            &event) ||
        event == v1::NOTIFY_EVENT_UNSPECIFIED) {
      return absl::InvalidArgumentError(
          absl::StrCat("--on '", word, "' is no event; expected start, end, failure or stuck"));
    }
    target.add_events(event);
  }
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(const v1::AddTargetResponse added,
                      link->Call(&v1::NotifyService::Stub::AddTarget, request));
  context.Say(absl::StrCat("word of your jobs goes to ", AddressOf(added.target()), " on ",
                           EventWords(added.target()), "; `trainyard notify test ",
                           added.target().name(), "` tries it"));
  if (!added.signing_key().empty()) {
    context.Say("its messages are signed with this key, which is shown this once:");
  }
  if (!PrintOne(context, added, added.target().name()) && !added.signing_key().empty()) {
    context.out << added.signing_key() << "\n";
  }
  return link::kOk;
}

Result ListTargets(const Context& context) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(const v1::ListTargetsResponse response,
                      link->Call(&v1::NotifyService::Stub::ListTargets, v1::ListTargetsRequest()));
  std::vector<std::string> names;
  for (const v1::NotifyTarget& target : response.targets()) names.push_back(target.name());
  if (PrintMessages(context, response.targets(), names)) return link::kOk;
  if (response.targets().empty()) {
    context.Say("nobody gets word of your jobs; `trainyard notify add` changes that");
    return link::kOk;
  }
  output::Table table({{"TARGET"}, {"ADDRESS"}, {"ON"}, {"LAST DELIVERY"}});
  for (const v1::NotifyTarget& target : response.targets()) {
    table.AddRow({target.name(), AddressOf(target), EventWords(target),
                  LastDelivery(target, context.clock.Now())});
  }
  context.out << table.Render();
  return link::kOk;
}

Result RemoveTargets(const Context& context, const RemoveTargetsOptions& options) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  for (const std::string& name : options.names) {
    v1::DeleteTargetRequest request;
    request.set_name(name);
    TY_RETURN_IF_ERROR(link->Call(&v1::NotifyService::Stub::DeleteTarget, request).status());
    context.Say(absl::StrCat("target ", name, " is removed"));
  }
  return link::kOk;
}

Result TestTarget(const Context& context, const TargetOptions& options) {
  v1::TestTargetRequest request;
  request.set_name(options.name);
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(const v1::Delivery delivery,
                      link->Call(&v1::NotifyService::Stub::TestTarget, request, kTestTimeout));
  if (PrintOne(context, delivery, delivery.id())) return link::kOk;
  if (delivery.state() != v1::DELIVERY_STATE_DELIVERED) {
    return absl::UnavailableError(
        absl::StrCat("nothing was delivered to ", delivery.address(), ": ", delivery.result()));
  }
  context.Say(absl::StrCat("delivered to ", delivery.address(), ": ", delivery.result()));
  return link::kOk;
}

Result ListDeliveries(const Context& context, const DeliveriesOptions& options) {
  v1::ListDeliveriesRequest request;
  request.set_target(options.target);
  request.set_limit(options.limit);
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(const v1::ListDeliveriesResponse response,
                      link->Call(&v1::NotifyService::Stub::ListDeliveries, request));
  std::vector<std::string> names;
  for (const v1::Delivery& delivery : response.deliveries()) names.push_back(delivery.id());
  if (PrintMessages(context, response.deliveries(), names)) return link::kOk;
  if (response.deliveries().empty()) {
    context.Say("nothing was told yet");
    return link::kOk;
  }
  const absl::Time now = context.clock.Now();
  output::Table table({{"AGE"}, {"JOB"}, {"EVENT"}, {"ADDRESS"}, {"STATE"}, {"TRIES"}, {"RESULT"}});
  for (const v1::Delivery& delivery : response.deliveries()) {
    table.AddRow({output::AgeText(now - output::ToTime(delivery.create_time())), delivery.job(),
                  EventWord(delivery.event()), delivery.address(),
                  DeliveryStateWord(delivery.state()), absl::StrCat(delivery.tries()),
                  delivery.result()});
  }
  context.out << table.Render();
  return link::kOk;
}

}  // namespace

void AddNotify(VerbTable& verbs) {
  verbs.Group("notify", "Who gets word when your jobs start, end, fail or are stuck");
  verbs.Add<AddTargetOptions>(
      "notify add", "Send word of your jobs to a webhook or by mail", "--mail anna@lab.example",
      [](client::Flags& flags, AddTargetOptions& options) {
        flags.Value("--webhook", options.webhook, "URL to which messages are posted, as JSON");
        flags.Value("--mail", options.mail, "Mail address");
        flags.Value("--on", options.on,
                    "Events with commas: start, end, failure, stuck [end,failure]");
        flags.Value("--name", options.name, "Its name [webhook or mail]");
      },
      AddTarget);
  verbs.Add("notify ls", "List your targets, and their last deliveries", "", ListTargets);
  verbs.Add<RemoveTargetsOptions>(
      "notify rm", "Send no more word to targets", "webhook",
      [](client::Flags& flags, RemoveTargetsOptions& options) {
        flags.Words("NAME", options.names, "The targets").Required();
      },
      RemoveTargets);
  verbs.Add<TargetOptions>(
      "notify test", "Send a message to a target now, and say what became of it", "webhook",
      [](client::Flags& flags, TargetOptions& options) {
        flags.Word("NAME", options.name, "The target").Required();
      },
      TestTarget);
  verbs.Add<DeliveriesOptions>(
      "notify log", "List deliveries, the newest first", "",
      [](client::Flags& flags, DeliveriesOptions& options) {
        flags.Word("NAME", options.target, "Those to this target only");
        flags.Value("--limit", options.limit, "The most to show [50]").Range(1, 200);
      },
      ListDeliveries);
}

}  // namespace trainyard::commands
