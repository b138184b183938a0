// Tests the line of progress, and what it leaves out if there is not enough room.
#include "client/output/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trainyard::output {
namespace {

ProgressView View() {
  ProgressView view;
  view.step = 412;
  view.total_steps = 936;
  view.epoch = 1;
  view.epochs = 3;
  view.samples_per_s = 5412;
  view.eta = absl::Seconds(12);
  view.loss = 0.4313;
  view.accuracy = 0.862;
  view.is_test_accuracy = true;
  return view;
}

TEST(Progress, TheLineOfAFileSaysEverything) {
  EXPECT_EQ(ProgressTextLine(View()),
            "epoch 2/3  step 412/936  44%  5,412 samples/s  eta 12s  loss 0.4313  "
            "test accuracy 86.2%");
  ProgressView early = View();
  early.is_test_accuracy = false;
  EXPECT_THAT(ProgressTextLine(early), ::testing::EndsWith("  batch accuracy 86.2%"));
}

TEST(Progress, WhatIsUnknownIsLeftOut) {
  ProgressView view;
  view.step = 1;
  view.total_steps = 10;
  EXPECT_EQ(ProgressTextLine(view), "step 1/10  10%");
}

TEST(Progress, TheBarIsDrawnInAsciiWhereNothingElseCanBeShown) {
  Terminal terminal;
  terminal.width = 120;
  EXPECT_EQ(ProgressBarLine(View(), terminal),
            "epoch 2/3 [###########.............] 412/936  5,412 samples/s  eta 12s  loss 0.4313  "
            "test accuracy 86.2%");
}

TEST(Progress, TheBarIsDrawnInEighthsOfACell) {
  Terminal terminal;
  terminal.width = 120;
  terminal.unicode = true;
  EXPECT_EQ(ProgressBarLine(View(), terminal),
            "epoch 2/3 ▕██████████▋             ▏ 412/936  5,412 samples/s  eta 12s  loss 0.4313  "
            "test accuracy 86.2%");
}

TEST(Progress, TheLineFitsEveryTerminal) {
  for (int width = 40; width <= 200; ++width) {
    for (const bool unicode : {false, true}) {
      Terminal terminal;
      terminal.width = width;
      terminal.unicode = unicode;
      EXPECT_LT(DisplayWidth(ProgressBarLine(View(), terminal)), width) << width;
    }
  }
}

TEST(Progress, AFullBarIsFull) {
  Terminal terminal;
  ProgressView view;
  view.step = 10;
  view.total_steps = 10;
  EXPECT_THAT(ProgressBarLine(view, terminal), ::testing::HasSubstr("####] 10/10"));
}

TEST(Transfer, ALineHasBytesRateAndTimeLeft) {
  TransferView view{.name = "cifar.tar.gz", .bytes = 50 << 20, .total = 200 << 20};
  EXPECT_EQ(TransferTextLine(view), "cifar.tar.gz  50 MiB/200 MiB  25%");
  view.bytes_per_s = 10 << 20;
  EXPECT_EQ(TransferTextLine(view), "cifar.tar.gz  50 MiB/200 MiB  25%  10 MiB/s  eta 15s");
  view.total = 0;
  EXPECT_EQ(TransferTextLine(view), "cifar.tar.gz  50 MiB  10 MiB/s");
}

TEST(Transfer, ABarFitsAnyTerminal) {
  const TransferView view{
      .name = "cifar.tar.gz", .bytes = 50 << 20, .total = 200 << 20, .bytes_per_s = 10 << 20};
  Terminal terminal;
  EXPECT_EQ(TransferBarLine(view, terminal),
            "cifar.tar.gz [######..................] 50 MiB/200 MiB  10 MiB/s  eta 15s");
  for (const int width : {200, 60, 40, 30}) {
    terminal.width = width;
    EXPECT_LT(DisplayWidth(TransferBarLine(view, terminal)), width) << width;
  }
}

TEST(Progress, TheViewComesFromTheJob) {
  v1::Progress progress;
  progress.set_step(5);
  progress.set_total_steps(7);
  progress.mutable_eta()->set_seconds(90);
  const ProgressView view = ViewOf(progress);
  EXPECT_EQ(view.step, 5);
  EXPECT_EQ(view.eta, absl::Seconds(90));
  EXPECT_FALSE(ViewOf(v1::Progress()).eta.has_value());
}

}  // namespace
}  // namespace trainyard::output
