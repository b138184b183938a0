// providers lists and steers the clusters that the server asks for workers.
#include <algorithm>
#include <cmath>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/commands/pod_file.h"
#include "client/commands/verbs.h"
#include "client/output/table.h"
#include "client/output/text.h"
#include "common/base/duration.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "common/spec/byte_size.h"

namespace trainyard::commands {
namespace {

using output::Table;

// Takes back what was said of data sets.
constexpr char kAnyDataset[] = "any";

struct ProviderOptions {
  std::string name;
  bool slurm = false;
  std::string kubernetes;  // the file of the pod
  std::string space;
  std::string queue;
  std::string kubeconfig;
  std::string context;
  std::string owner;
  std::optional<int> devices;
  std::optional<int> gpus;
  std::string device_type;
  std::optional<int> cpus;
  std::string memory;
  std::optional<int> nodes;
  std::string time_limit;
  std::optional<int> min;
  std::optional<int> max;
  std::optional<int> backlog;
  std::string idle_time;
  std::optional<int> preference;
  std::string cost;
  std::vector<std::string> datasets;
  std::string folder;
  std::string worker_program;
  std::string server_address;
  bool dry_run = false;
  std::vector<std::string> arguments;
};
struct NamedOptions {
  std::string name;
  std::string reason;
  bool forget = false;
};
struct CancelOptions {
  std::string name;
  std::string number;
};

std::string StateText(v1::PilotState state) {
  return v1::PilotState_Name(state).substr(sizeof("PILOT_STATE_") - 1);
}
std::string StateText(v1::ProviderState state) {
  return v1::ProviderState_Name(state).substr(sizeof("PROVIDER_STATE_") - 1);
}

absl::Status TakeDuration(const std::string& text, const char* flag,
                          google::protobuf::Duration& duration) {
  const auto parsed = ParseDuration(text);
  TY_RETURN_IF_ERROR(Annotate(parsed.status(), flag));
  duration.set_seconds(absl::ToInt64Seconds(*parsed));
  return absl::OkStatus();
}

absl::Status TakeSlurm(const ProviderOptions& options, v1::ProviderSpec& spec) {
  for (const auto& [flag, text] :
       {std::pair("--namespace", &options.space), std::pair("--queue", &options.queue),
        std::pair("--kubeconfig", &options.kubeconfig), std::pair("--context", &options.context)}) {
    if (!text->empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(flag, " is for a Kubernetes, and this provider is a Slurm"));
    }
  }
  v1::SlurmCluster& slurm = *spec.mutable_slurm();
  if (!options.folder.empty()) slurm.set_folder(options.folder);
  if (!options.worker_program.empty()) slurm.set_worker_program(options.worker_program);
  if (!options.server_address.empty()) slurm.set_server_address(options.server_address);
  if (!options.arguments.empty()) {
    slurm.mutable_arguments()->Assign(options.arguments.begin(), options.arguments.end());
  }
  return absl::OkStatus();
}

absl::Status TakeKubernetes(const ProviderOptions& options, v1::ProviderSpec& spec) {
  if (!options.folder.empty() || !options.worker_program.empty() || !options.arguments.empty()) {
    return absl::InvalidArgumentError(
        "--folder, --worker-program and further arguments are for a Slurm; what a pod has stands "
        "in "
        "the file of --kubernetes");
  }
  v1::KubernetesCluster& kubernetes = *spec.mutable_kubernetes();
  if (!options.kubernetes.empty()) {
    TY_ASSIGN_OR_RETURN(*kubernetes.mutable_pod(), ReadPodFile(options.kubernetes));
  }
  if (!options.space.empty()) kubernetes.set_namespace_(options.space);
  if (!options.queue.empty()) kubernetes.set_queue(options.queue);
  if (!options.kubeconfig.empty()) kubernetes.set_kubeconfig(options.kubeconfig);
  if (!options.context.empty()) kubernetes.set_context(options.context);
  if (!options.server_address.empty()) kubernetes.set_server_address(options.server_address);
  return absl::OkStatus();
}

// Writes what was given into the spec, and leaves the rest of it.
absl::Status TakeOptions(const ProviderOptions& options, v1::ProviderSpec& spec) {
  if (options.devices.has_value() && options.gpus.has_value()) {
    return absl::InvalidArgumentError("--devices and --gpus say the same; give one of them");
  }
  if (options.gpus.has_value() && options.device_type.empty() && spec.device_type().empty()) {
    return absl::InvalidArgumentError(
        "--gpus needs --device-type, the type that jobs ask for, such as h200");
  }
  if (options.devices.has_value()) spec.set_devices(*options.devices);
  if (options.gpus.has_value()) spec.set_devices(*options.gpus);
  if (!options.device_type.empty()) spec.set_device_type(options.device_type);
  if (options.cpus.has_value()) spec.set_cpus(*options.cpus);
  if (!options.memory.empty()) {
    const auto bytes = spec::ParseByteSize(options.memory);
    TY_RETURN_IF_ERROR(Annotate(bytes.status(), "--memory"));
    spec.set_memory_bytes(bytes->bytes());
  }
  if (options.nodes.has_value()) spec.set_nodes(*options.nodes);
  if (!options.time_limit.empty()) {
    TY_RETURN_IF_ERROR(
        TakeDuration(options.time_limit, "--time-limit", *spec.mutable_time_limit()));
  }
  if (options.min.has_value()) spec.set_min_pilots(*options.min);
  if (options.max.has_value()) spec.set_max_pilots(*options.max);
  if (options.backlog.has_value()) spec.set_backlog(*options.backlog);
  if (!options.idle_time.empty()) {
    TY_RETURN_IF_ERROR(TakeDuration(options.idle_time, "--idle-time", *spec.mutable_idle_time()));
  }
  if (options.preference.has_value()) spec.set_preference(*options.preference);
  if (!options.cost.empty()) {
    double cost = 0;
    if (!absl::SimpleAtod(options.cost, &cost) || !std::isfinite(cost) || cost < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("--cost '", options.cost, "' is no price; expected a number such as 2.5"));
    }
    spec.set_cost_per_hour(cost);
  }
  if (!options.datasets.empty()) {
    spec.clear_datasets();
    for (const std::string& name : options.datasets) {
      if (name != kAnyDataset) spec.add_datasets(name);
    }
  }
  if (!options.owner.empty()) spec.set_owner(options.owner);
  return spec.has_kubernetes() || !options.kubernetes.empty() ? TakeKubernetes(options, spec)
                                                              : TakeSlurm(options, spec);
}

int CountLive(const v1::Provider& provider, bool runs) {
  return static_cast<int>(std::count_if(
      provider.pilots().begin(), provider.pilots().end(), [runs](const v1::Pilot& pilot) {
        if (runs) return pilot.state() == v1::PILOT_STATE_RUNNING;
        return pilot.state() != v1::PILOT_STATE_RUNNING && pilot.state() != v1::PILOT_STATE_ENDED;
      }));
}

std::string NodeText(const v1::ProviderSpec& spec) {
  std::string text = absl::StrCat(spec.devices(), " x ", spec.device_type());
  if (spec.nodes() > 1) absl::StrAppend(&text, " on ", spec.nodes(), " nodes");
  return text;
}

std::string OwnerText(const v1::ProviderSpec& spec) {
  return spec.owner().empty() ? "everybody" : spec.owner();
}

// Returns a moment as the time since or until it.
std::string AgoText(const google::protobuf::Timestamp& time, absl::Time now) {
  return time.seconds() == 0 ? "-" : output::AgeText(now - output::ToTime(time));
}

Result AddProvider(const Context& context, const ProviderOptions& options) {
  if (options.slurm && !options.kubernetes.empty()) {
    return absl::InvalidArgumentError(
        "only one of --slurm and --kubernetes can be asked; leave one of them out");
  }
  if (!options.slurm && options.kubernetes.empty()) {
    return absl::InvalidArgumentError(
        "say which cluster is to be asked: --slurm, or --kubernetes POD.yaml");
  }
  v1::CreateProviderRequest request;
  request.mutable_spec()->set_name(options.name);
  TY_RETURN_IF_ERROR(TakeOptions(options, *request.mutable_spec()));
  if (request.spec().devices() == 0) request.mutable_spec()->set_devices(1);
  if (request.spec().cpus() == 0) request.mutable_spec()->set_cpus(request.spec().devices());
  request.set_validate_only(options.dry_run);
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(const v1::Provider made,
                      link->Call(&v1::ProviderService::Stub::CreateProvider, request));
  if (PrintOne(context, made, made.spec().name())) return link::kOk;
  context.Say(options.dry_run
                  ? absl::StrCat("the cluster would accept pilots of '", made.spec().name(), "'")
                  : absl::StrCat("provider '", made.spec().name(), "' is asked for up to ",
                                 made.spec().max_pilots(), " pilots with ", NodeText(made.spec()),
                                 " each, when jobs wait for them"));
  return link::kOk;
}

Result UpdateProvider(const Context& context, const ProviderOptions& options) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  v1::GetProviderRequest get;
  get.set_name(options.name);
  TY_ASSIGN_OR_RETURN(const v1::Provider known,
                      link->Call(&v1::ProviderService::Stub::GetProvider, get));
  v1::UpdateProviderRequest request;
  *request.mutable_spec() = known.spec();
  TY_RETURN_IF_ERROR(TakeOptions(options, *request.mutable_spec()));
  TY_ASSIGN_OR_RETURN(const v1::Provider made,
                      link->Call(&v1::ProviderService::Stub::UpdateProvider, request));
  if (PrintOne(context, made, made.spec().name())) return link::kOk;
  context.Say(absl::StrCat("provider '", made.spec().name(), "' is changed"));
  return link::kOk;
}

Result ListProviders(const Context& context) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(
      const v1::ListProvidersResponse response,
      link->Call(&v1::ProviderService::Stub::ListProviders, v1::ListProvidersRequest()));
  std::vector<std::string> names;
  for (const v1::Provider& provider : response.providers()) names.push_back(provider.spec().name());
  if (PrintMessages(context, response.providers(), names)) return link::kOk;
  if (response.providers().empty()) {
    context.Say("no providers; `trainyard providers add NAME --slurm` lets a Slurm bring workers");
    return link::kOk;
  }
  Table table({{"PROVIDER"},
               {"STATE"},
               {"CLUSTER"},
               {"PILOT"},
               {"RUNNING", Table::Align::kRight},
               {"COMING", Table::Align::kRight},
               {"MAX", Table::Align::kRight},
               {"OWNER"},
               {"REASON"}});
  for (const v1::Provider& provider : response.providers()) {
    const v1::ProviderSpec& spec = provider.spec();
    table.AddRow(
        {spec.name(), StateText(provider.state()), spec.has_kubernetes() ? "kubernetes" : "slurm",
         NodeText(spec), absl::StrCat(CountLive(provider, true)),
         absl::StrCat(CountLive(provider, false)), absl::StrCat(spec.max_pilots()), OwnerText(spec),
         provider.state_reason().empty() ? provider.list_failure() : provider.state_reason()});
  }
  context.out << table.Render();
  return link::kOk;
}

// Shows where pilots are, and where their logs are.
void PrintCluster(const Context& context, const v1::ProviderSpec& spec) {
  if (!spec.has_kubernetes()) {
    context.out << "sbatch    " << absl::StrJoin(spec.slurm().arguments(), " ") << "\n"
                << "logs      " << spec.slurm().folder() << "\n";
    return;
  }
  const v1::KubernetesCluster& kubernetes = spec.kubernetes();
  context.out << "cluster   "
              << (kubernetes.kubeconfig().empty() ? "that of the server's own pod"
                                                  : kubernetes.kubeconfig());
  if (!kubernetes.context().empty()) context.out << ", context " << kubernetes.context();
  context.out << "\nnamespace " << kubernetes.namespace_();
  if (!kubernetes.queue().empty()) context.out << ", queue " << kubernetes.queue();
  context.out << "\nlogs      kubectl -n " << kubernetes.namespace_()
              << " logs -l trainyard.dev/pilot=PILOT --all-containers\n";
}

void Print(const Context& context, const v1::Provider& provider) {
  const v1::ProviderSpec& spec = provider.spec();
  const absl::Time now = context.clock.Now();
  context.out << "provider  " << spec.name()
              << (spec.has_kubernetes() ? ", a Kubernetes\n" : ", a Slurm\n");
  context.out << "state     " << StateText(provider.state());
  if (!provider.state_reason().empty()) context.out << ": " << provider.state_reason();
  context.out << "\n";
  if (provider.has_retry_time()) {
    context.out << "retry     in " << output::AgeText(output::ToTime(provider.retry_time()) - now)
                << "\n";
  }
  context.out << "pilot     " << NodeText(spec) << ", " << spec.cpus() << " cpus"
              << (spec.memory_bytes() > 0 ? absl::StrCat(", ", FormatBytes(spec.memory_bytes()))
                                          : "")
              << ", for " << DurationText(absl::Seconds(spec.time_limit().seconds()))
              << " at most\n";
  context.out << "pilots    " << spec.min_pilots() << " to " << spec.max_pilots() << ", "
              << spec.backlog() << " in the cluster's queue; one without work ends after "
              << DurationText(absl::Seconds(spec.idle_time().seconds())) << "\n";
  context.out << "jobs of   " << OwnerText(spec) << "\n";
  if (!spec.datasets().empty()) {
    context.out << "data sets " << absl::StrJoin(spec.datasets(), ", ") << "\n";
  }
  context.out << "list      "
              << (provider.has_list_time()
                      ? absl::StrCat(AgoText(provider.list_time(), now), " ago")
                      : "none yet");
  if (!provider.list_failure().empty()) context.out << "; " << provider.list_failure();
  context.out << "\n";
  PrintCluster(context, spec);
  context.out << "\n";
  Table table({{"PILOT"}, {"STATE"}, {"ID"}, {"AGE"}, {"RUNS SINCE"}, {"REASON"}});
  for (const v1::Pilot& pilot : provider.pilots()) {
    table.AddRow({pilot.name(), StateText(pilot.state()), pilot.foreign_id(),
                  AgoText(pilot.create_time(), now), AgoText(pilot.start_time(), now),
                  pilot.reason().empty() ? pilot.foreign_reason() : pilot.reason()});
  }
  if (provider.pilots().empty()) {
    context.out << "no pilots\n";
  } else {
    context.out << table.Render();
  }
}

Result ShowProvider(const Context& context, const NamedOptions& options) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  v1::GetProviderRequest request;
  request.set_name(options.name);
  TY_ASSIGN_OR_RETURN(const v1::Provider provider,
                      link->Call(&v1::ProviderService::Stub::GetProvider, request));
  if (!PrintOne(context, provider, provider.spec().name())) Print(context, provider);
  return link::kOk;
}

Result PauseProvider(const Context& context, const NamedOptions& options) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  v1::PauseProviderRequest request;
  request.set_name(options.name);
  request.set_reason(options.reason);
  TY_RETURN_IF_ERROR(link->Call(&v1::ProviderService::Stub::PauseProvider, request).status());
  context.Say(absl::StrCat("provider '", options.name, "' is paused; its pilots stay"));
  return link::kOk;
}

Result ResumeProvider(const Context& context, const NamedOptions& options) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  v1::ResumeProviderRequest request;
  request.set_name(options.name);
  TY_RETURN_IF_ERROR(link->Call(&v1::ProviderService::Stub::ResumeProvider, request).status());
  context.Say(absl::StrCat("provider '", options.name, "' is asked again"));
  return link::kOk;
}

Result RemoveProvider(const Context& context, const NamedOptions& options) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  v1::DeleteProviderRequest request;
  request.set_name(options.name);
  request.set_forget(options.forget);
  TY_RETURN_IF_ERROR(link->Call(&v1::ProviderService::Stub::DeleteProvider, request).status());
  context.Say(absl::StrCat(
      "provider '", options.name, "' ",
      options.forget ? "is forgotten; cancel what still runs in its cluster yourself"
                     : absl::StrCat("goes once its pilots have ended; `trainyard providers show ",
                                    options.name, "` lists them")));
  return link::kOk;
}

Result CancelPilot(const Context& context, const CancelOptions& options) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  v1::CancelPilotRequest request;
  request.set_provider(options.name);
  int64_t number = 0;
  if (!absl::SimpleAtoi(options.number, &number)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", options.number, "' is no number of a pilot; `trainyard providers show ",
                     options.name, "` lists them"));
  }
  request.set_number(number);
  TY_RETURN_IF_ERROR(link->Call(&v1::ProviderService::Stub::CancelPilot, request).status());
  context.Say(absl::StrCat("pilot ", options.number, " of '", options.name,
                           "' is cancelled; its jobs go on elsewhere from their checkpoints"));
  return link::kOk;
}

void DeclareSpec(client::Flags& flags, ProviderOptions& options) {
  flags.Value("--devices", options.devices, "Devices of a node of a pilot [1]").Range(1, 1024);
  flags.Value("--gpus", options.gpus, "The same, for GPUs; --device-type says which")
      .Range(1, 1024);
  flags.Value("--device-type", options.device_type,
              "The type of the devices, as jobs ask for it: cpu, h200 [cpu]");
  flags.Value("--cpus", options.cpus, "Processors of a node [as many as devices]").Range(1, 65536);
  flags.Value("--memory", options.memory, "Memory of a node: '64 GiB' [what the cluster gives]");
  flags.Value("--nodes", options.nodes, "Nodes of a pilot, for gangs over several hosts [1]")
      .Range(1, 1000);
  flags.Value("--time-limit", options.time_limit, "The longest life of a pilot [8h]");
  flags.Value("--min", options.min, "Pilots that are kept even without work [0]").Range(0, 1000);
  flags.Value("--max", options.max, "The most pilots at a time [1]").Range(1, 1000);
  flags.Value("--backlog", options.backlog, "The most pilots that wait in the cluster's queue [1]")
      .Range(1, 1000);
  flags.Value("--idle-time", options.idle_time, "A pilot without work ends after this time [5m]");
  flags
      .Value("--preference", options.preference,
             "Providers of a lower number are asked first, and of equal ones the cheaper [0]")
      .Range(-1000, 1000);
  flags.Value("--cost", options.cost, "The price of a pilot for an hour [0]");
  flags.Repeated(
      "--dataset", options.datasets,
      "A data set that its workers find, as `data ls` calls it; may be repeated. Jobs on "
      "others get no pilot; 'any' takes the names back [any]");
  flags.Value(
      "--owner", options.owner,
      "The only user whose jobs run there [Kubernetes: everybody; Slurm: the server's user]");
  flags.Value("--queue", options.queue,
              "Kubernetes: a LocalQueue of Kueue, which lets all nodes of a pilot begin at once");
  flags.Value("--namespace", options.space,
              "Kubernetes: where the pods are [that of the context, or of the server's pod]");
  flags.Value("--kubeconfig", options.kubeconfig,
              "Kubernetes: a file on the server's host [the cluster of the server's own pod]");
  flags.Value("--context", options.context, "Kubernetes: a context of that file [its current one]");
  flags.Value("--folder", options.folder,
              "Slurm: a folder that the nodes see too, for tokens and logs [STATE_DIR/pilots]");
  flags.Value("--worker-program", options.worker_program,
              "Slurm: trainyard-worker on the nodes [that of the server's host]");
  flags.Value("--server-address", options.server_address,
              "Address under which nodes reach the server [tls://HOST:PORT of it]");
  flags.Rest("ARGUMENT", options.arguments, "Further arguments of sbatch: -p gpu -A lab");
}

}  // namespace

void AddProviders(VerbTable& verbs) {
  verbs.Group("providers", "Clusters that bring workers when jobs wait for them");
  verbs.Add<ProviderOptions>(
      "providers add", "Let a cluster bring workers",
      "gpu --slurm --time-limit 8h --gpus 4 --device-type h200 --max 6 -- -p gpu -A lab",
      [](client::Flags& flags, ProviderOptions& options) {
        flags.Word("NAME", options.name, "Its name: [a-z0-9-]").Required();
        flags.Switch("--slurm", options.slurm, "The cluster is a Slurm, asked by sbatch");
        flags.Value("--kubernetes", options.kubernetes,
                    "The cluster is a Kubernetes; this YAML file describes the pod of a worker");
        flags.Switch("--dry-run", options.dry_run,
                     "Only ask the cluster whether it would accept such a pilot");
        DeclareSpec(flags, options);
      },
      AddProvider);
  verbs.Add<ProviderOptions>(
      "providers update", "Change a provider; its pilots stay as they were asked for",
      "gpu --max 12",
      [](client::Flags& flags, ProviderOptions& options) {
        flags.Word("NAME", options.name, "Its name").Required();
        flags.Value("--kubernetes", options.kubernetes,
                    "The YAML file that describes the pod of a worker from now on");
        DeclareSpec(flags, options);
      },
      UpdateProvider);
  verbs.Add("providers ls", "List the providers", "", ListProviders);
  verbs.Add<NamedOptions>(
      "providers show", "Show a provider and its pilots", "gpu",
      [](client::Flags& flags, NamedOptions& options) {
        flags.Word("NAME", options.name, "Its name").Required();
      },
      ShowProvider);
  verbs.Add<NamedOptions>(
      "providers pause", "Ask a provider for nothing more", "gpu --reason 'maintenance'",
      [](client::Flags& flags, NamedOptions& options) {
        flags.Word("NAME", options.name, "Its name").Required();
        flags.Value("--reason", options.reason, "Why, for others who look at it");
      },
      PauseProvider);
  verbs.Add<NamedOptions>(
      "providers resume", "Ask a provider again that was paused or fails", "gpu",
      [](client::Flags& flags, NamedOptions& options) {
        flags.Word("NAME", options.name, "Its name").Required();
      },
      ResumeProvider);
  verbs.Add<NamedOptions>(
      "providers rm", "Remove a provider once its pilots have ended their work", "gpu",
      [](client::Flags& flags, NamedOptions& options) {
        flags.Word("NAME", options.name, "Its name").Required();
        flags.Switch("--forget", options.forget,
                     "Remove it at once, since its cluster does not answer any more");
      },
      RemoveProvider);
  verbs.Add<CancelOptions>(
      "providers cancel", "Cancel a pilot; its jobs go on elsewhere", "gpu 12",
      [](client::Flags& flags, CancelOptions& options) {
        flags.Word("NAME", options.name, "The provider").Required();
        flags.Word("NUMBER", options.number, "The number of the pilot").Required();
      },
      CancelPilot);
}

}  // namespace trainyard::commands
