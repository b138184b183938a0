// Tests that a worker can set up what the server accepts: each limit of the spec, at both of its
// ends.
//
// The fields and their limits are found by reflection, so that a new field is tried as soon as it
// is in the proto. What a worker finds out only from files, or from the memory of its devices, is
// no part of it.
#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/spec/fields.h"
#include "common/spec/resolve.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"
#include "worker/data/open_dataset.h"
#include "worker/engine/graph/split.h"
#include "worker/trainer/plan/data_setup.h"
#include "worker/trainer/plan/model_setup.h"
#include "worker/trainer/plan/spec.h"

namespace trainyard::trainer {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Does everything that a rank does with a spec before it opens a file or allocates memory.
absl::Status SetUp(const v1::JobSpec& resolved) {
  std::string json;
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  const auto printed = google::protobuf::util::MessageToJsonString(resolved, &json, options);
  if (!printed.ok()) return absl::InternalError(std::string(printed.message()));
  TY_ASSIGN_OR_RETURN(const v1::JobSpec spec, ParseSpec(json));
  const int pipelines = std::max(1, spec.devices().count() / spec.stages().count());
  TY_RETURN_IF_ERROR(PrepareModel(spec, {.world_size = pipelines}).status());
  (void)MakeSchedule(spec, /*steps_per_epoch=*/100, /*total_steps=*/1000);
  return data::CheckDatasetOptions(spec.data().dataset(), MakeDatasetOptions(spec, "/srv/data"));
}

// Lists specs that together reach every message of the proto. Each is valid.
constexpr const char* kSpecs[] = {
    R"(model { mlp {} } data { dataset: "glyphs" augment { pad_crop: 2 color {} } }
       optimizer { sgd { momentum: 0.9 } } schedule { step { milestones: 1 } }
       resources { cpus: 1 })",
    R"(model { convnet {} } data { dataset: "glyphs" augment { random_resized_crop {} } }
       optimizer { adamw {} } schedule { cosine {} })",
    R"(model { resnet {} } data { dataset: "images" path: "pets" image_size: 224 resize: 256 }
       optimizer { lars {} } schedule { polynomial {} })",
    R"(model { resnet { stem: STEM_CIFAR depth: 20 classes: 10 input: 3 input: 32 input: 32 } }
       data { dataset: "cifar10" } optimizer { lamb {} } schedule { constant {} })",
    R"(model { wide_resnet {} } data { dataset: "cifar10" } optimizer { adam {} })",
    R"(model { alexnet {} } data { dataset: "images" path: "pets" } optimizer { sgd {} })",
    R"(model { vgg {} } data { dataset: "images" path: "pets" } optimizer { sgd {} })",
    R"(model { googlenet {} } data { dataset: "images" path: "pets" } optimizer { sgd {} }
       init { checkpoint: "a.safetensors" skip: "fc." digest: "x" })",
    R"(model { gpt2 { heads: 1 } } data { dataset: "tokens" path: "webtext" }
       optimizer { adamw {} })",
    R"(model { layers { stack { name: "c" conv2d { channels: 8 } } stack { batch_norm {} }
                        stack { group_norm { groups: 2 } }
                        stack { lrn {} } stack { max_pool {} } stack { avg_pool {} }
                        stack { upsample {} }
                        stack { gelu {} } stack { dropout {} } stack { flatten {} }
                        stack { linear { features: 10 } } } }
       data { dataset: "glyphs" } optimizer { sgd {} })",
    R"(model { layers { input: 16 vocabulary: 50 stack { embedding { width: 12 } }
                        stack { position_embedding {} } stack { layer_norm {} }
                        stack { linear { features: 36 } } stack { attention {} }
                        stack { linear { features: 50 } } } }
       data { dataset: "tokens" path: "webtext" } optimizer { sgd {} })",
    // These are large and small specs, for fields that depend on each other.
    R"(model { mlp {} } data { dataset: "glyphs" } optimizer { sgd {} }
       train { global_batch: 8192 replicas: 4096 } devices { count: 4096 })",
    R"(model { layers { input: 3 input: 4096 input: 4096 stack { conv2d { channels: 8 } }
                        stack { global_avg_pool {} } stack { flatten {} }
                        stack { linear { features: 10 } } } }
       data { dataset: "images" path: "pets" image_size: 4096 resize: 16384 }
       optimizer { sgd {} })",
    R"(model { mlp { input: 3 input: 1 input: 1 } }
       data { dataset: "images" path: "pets" image_size: 1 resize: 1 } optimizer { sgd {} })",
};

// Reads a spec, and adds the fields that all specs need.
v1::JobSpec Read(const char* text) {
  v1::JobSpec spec;
  TY_CHECK(google::protobuf::TextFormat::ParseFromString(text, &spec));
  spec.set_name("limits");
  spec.mutable_train()->set_steps(1000);
  v1::OptimizerSpec& optimizer = *spec.mutable_optimizer();
  if (optimizer.has_sgd()) optimizer.mutable_sgd()->set_lr(0.1);
  if (optimizer.has_adamw()) optimizer.mutable_adamw()->set_lr(0.1);
  if (optimizer.has_adam()) optimizer.mutable_adam()->set_lr(0.1);
  if (optimizer.has_lars()) optimizer.mutable_lars()->set_lr(0.1);
  if (optimizer.has_lamb()) optimizer.mutable_lamb()->set_lr(0.1);
  auto resolved = spec::ResolveSpec(spec);
  TY_CHECK_OK(resolved.status());
  return *std::move(resolved);
}

bool IsWhole(const FieldDescriptor& field) {
  return field.cpp_type() != FieldDescriptor::CPPTYPE_DOUBLE;
}

bool IsNumber(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_INT32 ||
         field.cpp_type() == FieldDescriptor::CPPTYPE_INT64 ||
         field.cpp_type() == FieldDescriptor::CPPTYPE_UINT64 ||
         field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE;
}

bool IsText(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_STRING;
}

// Returns the smallest and the largest value that the rules accept, or all values if they list
// them.
std::vector<double> Ends(const FieldDescriptor& field) {
  const v1::FieldRules& rules = spec::RulesOf(field);
  const double step = IsWhole(field) ? 1 : 1e-12;
  std::vector<double> ends(rules.one_of_numbers().begin(), rules.one_of_numbers().end());
  if (rules.has_min()) ends.push_back(rules.min() + (rules.min_exclusive() ? step : 0));
  if (rules.has_max()) ends.push_back(rules.max() - (rules.max_exclusive() ? step : 0));
  return ends;
}

// Sets the field, or its element `index`, which is added if it is behind the last one.
void PutNumber(Message& message, const FieldDescriptor& field, double value, int index) {
  const Reflection& reflection = *message.GetReflection();
  const auto put = [&](auto set, auto replace, auto add, auto number) {
    if (!field.is_repeated()) return (reflection.*set)(&message, &field, number);
    if (index < reflection.FieldSize(message, &field)) {
      return (reflection.*replace)(&message, &field, index, number);
    }
    (reflection.*add)(&message, &field, number);
  };
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return put(&Reflection::SetInt32, &Reflection::SetRepeatedInt32, &Reflection::AddInt32,
                 static_cast<int32_t>(value));
    case FieldDescriptor::CPPTYPE_INT64:
      return put(&Reflection::SetInt64, &Reflection::SetRepeatedInt64, &Reflection::AddInt64,
                 static_cast<int64_t>(value));
    case FieldDescriptor::CPPTYPE_UINT64:
      return put(&Reflection::SetUInt64, &Reflection::SetRepeatedUInt64, &Reflection::AddUInt64,
                 static_cast<uint64_t>(value));
    default:
      return put(&Reflection::SetDouble, &Reflection::SetRepeatedDouble, &Reflection::AddDouble,
                 value);
  }
}

// Puts each field with limits at its ends, one at a time, and the spec through server and worker.
class Trials {
 public:
  void Run(const char* text) {
    text_ = text;
    spec_ = Read(text);
    Visit(spec_);
  }

  // Both return full names of fields.
  const std::set<std::string>& tried() const { return tried_; }
  const std::set<std::string>& accepted() const { return accepted_; }

 private:
  void Visit(Message& message) {
    const Descriptor& type = *message.GetDescriptor();
    const Reflection& reflection = *message.GetReflection();
    for (int i = 0; i < type.field_count(); ++i) {
      const FieldDescriptor& field = *type.field(i);
      if (field.is_map()) continue;
      if (field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
        TryField(message, field);
      } else if (field.is_repeated()) {
        for (int j = 0; j < reflection.FieldSize(message, &field); ++j) {
          Visit(*reflection.MutableRepeatedMessage(&message, &field, j));
        }
      } else if (reflection.HasField(message, &field)) {
        Visit(*reflection.MutableMessage(&message, &field));
      }
    }
  }

  void TryField(Message& message, const FieldDescriptor& field) {
    const v1::FieldRules& rules = spec::RulesOf(field);
    const Reflection& reflection = *message.GetReflection();
    if (IsNumber(field)) {
      const int count = field.is_repeated() ? reflection.FieldSize(message, &field) : 1;
      for (const double end : Ends(field)) {
        for (int j = 0; j < count; ++j) {
          Try(message, field, absl::StrCat(end), [&] { PutNumber(message, field, end, j); });
        }
      }
    }
    if (IsNumber(field) && field.is_repeated()) {
      for (const uint32_t length : {rules.min_length(), rules.max_length()}) {
        Try(message, field, absl::StrCat(length, " elements"), [&] {
          reflection.ClearField(&message, &field);
          for (int j = 0; j < static_cast<int>(length); ++j) {
            PutNumber(message, field, Ends(field)[0] + j, j);
          }
        });
      }
    }
    if (!IsText(field)) return;
    std::vector<std::string> texts(rules.one_of().begin(), rules.one_of().end());
    if (rules.max_length() > 0) texts.emplace_back(rules.max_length(), 'a');
    for (const std::string& value : texts) {
      Try(message, field, value, [&] {
        reflection.ClearField(&message, &field);
        if (field.is_repeated()) {
          reflection.AddString(&message, &field, value);
        } else {
          reflection.SetString(&message, &field, value);
        }
      });
    }
  }

  template <typename Change>
  void Try(Message& message, const FieldDescriptor& field, const std::string& value,
           const Change& change) {
    const std::unique_ptr<Message> before(message.New());
    before->CopyFrom(message);
    change();
    tried_.insert(field.full_name());
    v1::JobSpec resolved;
    if (spec::ResolveInto(spec_, resolved).empty()) {
      accepted_.insert(field.full_name());
      const absl::Status status = SetUp(resolved);
      EXPECT_TRUE(status.ok()) << field.full_name() << " of " << value << ": " << status << "\nin "
                               << text_;
    }
    message.CopyFrom(*before);
  }

  const char* text_ = "";
  v1::JobSpec spec_;
  std::set<std::string> tried_;
  std::set<std::string> accepted_;
};

// Returns all fields below `type` that have a limit.
void Collect(const Descriptor& type, std::set<const Descriptor*>& seen,
             std::set<std::string>& fields) {
  if (!seen.insert(&type).second) return;
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    const v1::FieldRules& rules = spec::RulesOf(field);
    if (field.is_map()) continue;
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      Collect(*field.message_type(), seen, fields);
    } else if (rules.has_min() || rules.has_max() || rules.one_of_numbers_size() > 0 ||
               rules.max_length() > 0 || rules.one_of_size() > 0) {
      fields.insert(field.full_name());
    }
  }
}

TEST(SpecLimits, WhatTheServerAcceptsAWorkerSetsUp) {
  Trials trials;
  for (const char* text : kSpecs) trials.Run(text);

  // No trainer sets up a program of the user's own, gives word of a job, or knows of a sweep.
  std::set<const Descriptor*> seen = {v1::ProgramSpec::descriptor(), v1::NotifySpec::descriptor(),
                                      v1::SweepSpec::descriptor()};
  std::set<std::string> limited;
  Collect(*v1::JobSpec::descriptor(), seen, limited);
  // A resolved spec has no devices.max, and no memory unless the user asks for it.
  limited.erase("trainyard.v1.ByteSize.bytes");
  EXPECT_THAT(trials.tried(), ::testing::ElementsAreArray(limited))
      << "a spec above must reach each message";

  // These are the fields whose ends the server refuses, since other fields would have to change
  // with them: the shape of the images, the names of other layers, devices.count. The patterns of a
  // tag and of a checkpoint, and the form of a time, are stricter than the limits of their lengths.
  std::set<std::string> refused = limited;
  for (const std::string& name : trials.accepted()) refused.erase(name);
  EXPECT_THAT(refused, ::testing::UnorderedElementsAre(
                           "trainyard.v1.AlexnetModel.input", "trainyard.v1.GooglenetModel.input",
                           "trainyard.v1.ResnetModel.input", "trainyard.v1.VggModel.input",
                           "trainyard.v1.WideResnetModel.input", "trainyard.v1.Layer.from",
                           "trainyard.v1.DevicesSpec.max", "trainyard.v1.JobSpec.tags",
                           "trainyard.v1.InitSpec.job", "trainyard.v1.JobSpec.from_checkpoint",
                           "trainyard.v1.JobSpec.retain"));
}

// Lists each network that a spec can choose by name, in each of its forms.
constexpr const char* kNetworks[] = {
    "mlp {}",
    "mlp { hidden: 8 hidden: 9 hidden: 10 }",
    "convnet {}",
    "convnet { batch_norm: true }",
    "resnet { depth: 18 }",
    "resnet { depth: 34 }",
    "resnet { depth: 50 }",
    "resnet { depth: 101 stem: STEM_CIFAR }",
    "resnet { depth: 20 stem: STEM_CIFAR }",
    "resnet { depth: 32 stem: STEM_CIFAR }",
    "resnet { depth: 110 stem: STEM_CIFAR }",
    "wide_resnet { depth: 10 width: 1 }",
    "wide_resnet { depth: 28 }",
    "alexnet {}",
    "alexnet { dropout: 0 }",
    "vgg { depth: 11 }",
    "vgg { depth: 13 batch_norm: true }",
    "vgg { depth: 16 dropout: 0 }",
    "vgg { depth: 19 }",
    "googlenet {}",
    "googlenet { dropout: 0 }",
    "googlenet { stem: STEM_CIFAR }",
    "gpt2 { layers: 3 heads: 1 }",
    "gpt2 { dropout: 0 }",
};

// Returns a spec of a network over squares of images of this side, or over tokens.
v1::JobSpec SpecOf(const char* network, int64_t side) {
  v1::JobSpec spec;
  TY_CHECK(google::protobuf::TextFormat::ParseFromString(
      absl::StrCat("model { ", network, " } optimizer { sgd { lr: 0.1 } } train { steps: 10 }"),
      &spec));
  spec.set_name("limits");
  if (spec.model().has_gpt2()) {
    spec.mutable_data()->set_dataset("tokens");
    spec.mutable_data()->set_path("text");
    return spec;
  }
  spec.mutable_data()->set_dataset("images");
  spec.mutable_data()->set_path("pets");
  spec.mutable_data()->set_image_size(side);
  Message& model = *spec.mutable_model();
  const Reflection& of_model = *model.GetReflection();
  Message& chosen = *of_model.MutableMessage(
      &model, of_model.GetOneofFieldDescriptor(model, v1::ModelSpec::descriptor()->oneof_decl(0)));
  const FieldDescriptor& input = *chosen.GetDescriptor()->FindFieldByName("input");
  for (const int64_t size : {int64_t{3}, side, side}) {
    chosen.GetReflection()->AddInt64(&chosen, &input, size);
  }
  return spec;
}

TEST(SpecLimits, TheServerRefusesTheImagesThatAWorkerRefuses) {
  std::vector<int64_t> sides = {224, 1024, 4096};
  for (int64_t side = 1; side <= 72; ++side) sides.push_back(side);
  for (const char* network : kNetworks) {
    for (const int64_t side : sides) {
      const v1::JobSpec spec = SpecOf(network, side);
      v1::JobSpec resolved;
      const bool is_accepted = spec::ResolveInto(spec, resolved).empty();
      const absl::Status status = BuildModel(resolved.model()).status();
      EXPECT_EQ(is_accepted, status.ok()) << network << " of " << side << ": " << status;
    }
  }
}

TEST(SpecLimits, TheServerRefusesTheStagesThatAWorkerRefuses) {
  for (const char* network : kNetworks) {
    v1::JobSpec spec = SpecOf(network, 224);
    v1::JobSpec resolved;
    ASSERT_TRUE(spec::ResolveInto(spec, resolved).empty()) << network;
    const auto graph = BuildModel(resolved.model());
    ASSERT_TRUE(graph.ok()) << graph.status();
    const auto most = static_cast<int>(engine::PossibleCuts(*graph).size()) + 1;
    for (const int count : {2, most, most + 1}) {
      if (count > 64) continue;  // the field has this limit
      spec.mutable_stages()->set_count(count);
      spec.mutable_devices()->set_count(count);
      EXPECT_EQ(spec::ResolveInto(spec, resolved).empty(), count <= most)
          << network << " in " << count << " stages; at most " << most;
    }
  }
}

}  // namespace
}  // namespace trainyard::trainer
