// The part of a job's spec that the trainer reads, as plain structs. The trainer has no protobuf:
// it reads the JSON form of trainyard.v1.JobSpec out of assignment.json. Defaults are those of the
// proto's field rules, so a spec written by hand needs only what has none.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/layers/stack.h"

namespace trainyard::run_dir {

struct ModelSpec {
  enum class Kind {
    kMlp,
    kConvnet,
    kResnet,
    kWideResnet,
    kAlexnet,
    kVgg,
    kGooglenet,
    kGpt2,
    kLayers,
  };
  enum class Stem { kImagenet, kCifar };
  Kind kind = Kind::kMlp;
  std::vector<int64_t> input = {1, 28, 28};  // channels, height, width; or tokens of a sample
  int64_t vocabulary = 0;                    // different tokens; 0: the input is no tokens
  int64_t classes = 10;                      // of tokens: the vocabulary
  std::vector<int64_t> hidden = {256};       // mlp
  std::vector<int64_t> channels = {32, 64};  // convnet
  bool batch_norm = false;                   // convnet, vgg
  int64_t depth = 18;                        // resnet, wide_resnet, vgg
  int64_t width = 10;                        // wide_resnet, gpt2
  int64_t layers = 12;                       // gpt2
  int64_t heads = 12;                        // gpt2
  Stem stem = Stem::kImagenet;               // resnet, googlenet
  double dropout = 0;                        // alexnet, vgg, googlenet, gpt2: the rate
  bool zero_init_residual = false;           // resnet
  layers::Stack stack = {};                  // layers; the ends above are then as in it

  friend bool operator==(const ModelSpec&, const ModelSpec&) = default;
};

// Random changes of training samples; zeros change nothing.
struct AugmentSpec {
  double min_area = 0;  // random_resized_crop; max 0: none
  double max_area = 0;
  int64_t pad_crop = 0;
  bool flip = false;
  double brightness = 0;
  double contrast = 0;
  double saturation = 0;
  double hue = 0;
  int64_t cutout = 0;

  friend bool operator==(const AugmentSpec&, const AugmentSpec&) = default;
};

struct DataSpec {
  enum class Normalize { kDataset, kUnit };
  std::string dataset = {};
  Normalize normalize = Normalize::kDataset;
  std::string digest = {};  // empty: anything
  int64_t train_size = 0;   // glyphs only; 0: its own size
  int64_t test_size = 0;
  AugmentSpec augment = {};
  std::string path = {};  // images, tokens
  // images only
  int64_t image_size = 224;
  int64_t resize = 0;  // 0: 8/7 of image_size
  bool skip_corrupt = false;

  friend bool operator==(const DataSpec&, const DataSpec&) = default;
};

// Exactly one of epochs and steps is positive.
struct TrainSpec {
  enum class Precision { kF32, kBf16, kTf32, kF16 };
  int64_t epochs = 0;
  int64_t steps = 0;
  int64_t global_batch = 64;
  int replicas = 0;  // 0: as many as ranks
  uint64_t seed = 1;
  Precision precision = Precision::kF32;
  double label_smoothing = 0;  // [0, 1)
  bool is_bitwise = false;
  bool sync_batch_norm = false;

  friend bool operator==(const TrainSpec&, const TrainSpec&) = default;
};

// One rule and what they all have; fields without a rule's name belong to every rule.
struct OptimizerSpec {
  enum class Rule { kSgd, kAdamW, kLars, kLamb };
  Rule rule = Rule::kSgd;
  double lr = 0;
  double momentum = 0;    // kSgd, kLars
  bool nesterov = false;  // kSgd, kLars
  double weight_decay = 0;
  double beta1 = 0.9;  // kAdamW, kLamb
  double beta2 = 0.999;
  double eps = 1e-8;                 // kAdamW, kLars, kLamb
  double trust_coefficient = 0.001;  // kLars
  bool decay_bias_and_norm = true;
  double clip_norm = 0;       // 0: never
  double ema_decay = 0;       // 0: no average
  int64_t lr_base_batch = 0;  // 0: rates are as they stand

  friend bool operator==(const OptimizerSpec&, const OptimizerSpec&) = default;
};

struct ScheduleSpec {
  enum class Shape { kConstant, kStep, kCosine, kPolynomial };
  Shape shape = Shape::kConstant;
  double warmup_epochs = 0;
  std::vector<double> milestones = {};  // kStep: epochs, ascending
  double gamma = 0.1;                   // kStep
  double final_lr = 0;                  // kCosine, kPolynomial
  double power = 1;                     // kPolynomial

  friend bool operator==(const ScheduleSpec&, const ScheduleSpec&) = default;
};

// A span in epochs, steps or time; exactly one is set.
struct IntervalSpec {
  int64_t epochs = 0;
  int64_t steps = 0;
  absl::Duration time = absl::ZeroDuration();

  friend bool operator==(const IntervalSpec&, const IntervalSpec&) = default;
};

// Where the weights start.
struct InitSpec {
  std::string checkpoint = {};  // a file below the folder of data sets; empty: random values
  std::vector<std::string> skip = {};
  std::string digest = {};  // empty: anything

  friend bool operator==(const InitSpec&, const InitSpec&) = default;
};

// How a step is made to fit in memory.
struct MemorySpec {
  bool recompute = false;
  int64_t microbatch = 0;  // most rows computed at once; 0: all of a replica
  bool shard_optimizer = false;

  friend bool operator==(const MemorySpec&, const MemorySpec&) = default;
};

// The network in parts, each on a device of its own.
struct StagesSpec {
  enum class Schedule { k1F1B, kGpipe, kSequential };
  int count = 1;
  std::vector<std::string> cuts = {};  // first layers of stages 1, ...; empty: chosen
  Schedule schedule = Schedule::k1F1B;
  int microbatches = 0;  // of a pipeline's rows in a step; 0: chosen

  friend bool operator==(const StagesSpec&, const StagesSpec&) = default;
};

struct TrainingSpec {
  std::string name = {};
  ModelSpec model;
  DataSpec data;
  TrainSpec train;
  OptimizerSpec optimizer;
  ScheduleSpec schedule;
  MemorySpec memory;
  int devices = 1;  // what the spec asks for; a run goes by the world size of its assignment
  IntervalSpec checkpoint_every{.epochs = 1};
  IntervalSpec evaluate_every{.epochs = 1};
  InitSpec init = {};
  StagesSpec stages = {};

  friend bool operator==(const TrainingSpec&, const TrainingSpec&) = default;
};

// INVALID_ARGUMENT (INVALID_SPEC) with all violations, each with its path
// ("spec.train.global_batch"); DATA_LOSS where the text is no JSON object.
absl::StatusOr<TrainingSpec> ParseTrainingSpec(absl::string_view spec_json);

}  // namespace trainyard::run_dir
