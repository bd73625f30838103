// Which image of the kernels a device and its driver get, and what a user reads where none fits.
#include "cuda/kernel_image.h"

#include <gtest/gtest.h>

#include "engine/cuda/kernels.h"
#include "tests/cuda/trial.h"

namespace tutti::cuda {
namespace {

/// "90" for native code of 9.0, "ptx 90" for PTX.
std::string names(const std::vector<KernelImage>& images) {
  std::string text;
  for (const KernelImage& image : images)
    text += (text.empty() ? "" : ", ") + std::string(image.is_ptx ? "ptx " : "") +
            std::to_string(image.architecture);
  return text;
}

KernelImage native(int architecture, int driver_version) {
  return {.is_ptx = false, .architecture = architecture, .driver_version = driver_version, .bytes = {}};
}

KernelImage ptx(int architecture, int driver_version) {
  return {.is_ptx = true, .architecture = architecture, .driver_version = driver_version, .bytes = {}};
}

const KernelImage kSome[] = {ptx(80, 12000),     native(80, 12000),  native(90, 13000),
                             native(100, 12080), native(120, 12080), ptx(90, 12020)};

TEST(KernelImageTest, NativeCodeOfTheGenerationComesFirst) {
  EXPECT_EQ(names(usable_images(kSome, 80, 13000)), "80, ptx 80");
  EXPECT_EQ(names(usable_images(kSome, 89, 13000)), "80, ptx 80");
  EXPECT_EQ(names(usable_images(kSome, 90, 13000)), "90, ptx 90, ptx 80");
  EXPECT_EQ(names(usable_images(kSome, 103, 13000)), "100, ptx 90, ptx 80");
  EXPECT_EQ(names(usable_images(kSome, 110, 13000)), "ptx 90, ptx 80");
  EXPECT_EQ(names(usable_images(kSome, 75, 13000)), "");
}

TEST(KernelImageTest, AnOlderDriverGetsWhatItLoads) {
  EXPECT_EQ(names(usable_images(kSome, 90, 12040)), "ptx 90, ptx 80");
  EXPECT_EQ(names(usable_images(kSome, 90, 12010)), "ptx 80");
  EXPECT_EQ(names(usable_images(kSome, 90, 11080)), "");
}

TEST(KernelImageTest, TheNeedIsASentence) {
  DeviceFacts device;
  device.name = "GPU";
  device.compute_major = 9;
  EXPECT_EQ(describe_need(kSome, device, 11080),
            "this build's kernels need a driver for CUDA 12.0 or newer on GPU of compute capability 9.0, and "
            "this driver supports CUDA 11.8: update NVIDIA's driver");
  EXPECT_EQ(describe_need(kSome, device, 12040),
            "the driver refuses this build's kernels on GPU of compute capability 9.0; this driver supports "
            "CUDA 12.4, and CUDA 12.0 should do");
  device.compute_major = 7;
  EXPECT_EQ(
      describe_need(kSome, device, 13000),
      "this build's kernels need compute capability 8.0 or higher, and this is GPU of compute capability "
      "7.0");
}

// Driver 550, which clusters run, supports CUDA 12.4.
TEST(KernelImageTest, ThisBuildServesDriversFromCuda124On) {
  const std::vector<KernelImage> images = kernel_images();
  for (const int capability : {80, 86, 89, 90, 100, 103, 110, 120, 121})
    EXPECT_NE(names(usable_images(images, capability, 12040)), "") << capability;
}

/// The environment of a driver and its devices.
Environment driver_of(int version, int capability) {
  return {{"FAKE_CUDA_VERSION", std::to_string(version)},
          {"FAKE_CUDA_CAPABILITY", std::to_string(capability)}};
}

/// Runs `body` with device 0 of the stand-in.
std::string with_device(const Environment& environment,
                        const std::function<void(Trial&, const Context&)>& body) {
  return run(
      [&](Trial& trial) {
        const auto driver = Driver::find();
        if (!trial.ok(driver.status(), "finding the driver")) return;
        const auto context = Context::retain(**driver, 0);
        if (trial.ok(context.status(), "context")) body(trial, **context);
      },
      environment);
}

constexpr const char* kNames[] = {kRunKernel, kShortKernel};

// Goal: what the build writes beside an image is what the image needs. Method: the stand-in reads the image
// for itself. It takes the image from a driver of the version said on, and refuses it before.
TEST(KernelImageTest, ADriverTakesAnImageFromTheVersionSaidOn) {
  for (const KernelImage& image : kernel_images()) {
    const auto loads = [&image](Trial& trial, const Context& context) {
      trial.ok(Library::load(context, image.bytes).status(), names({image}));
    };
    EXPECT_EQ(with_device(driver_of(image.driver_version, image.architecture), loads), "");
    if (image.driver_version == kLeastDriverVersion) continue;
    const auto refused = [&image](Trial& trial, const Context& context) {
      trial.is(Library::load(context, image.bytes).status().code() == Code::kUnsupported, names({image}));
    };
    EXPECT_EQ(with_device(driver_of(image.driver_version - 10, image.architecture), refused), "");
  }
}

TEST(KernelImageTest, ARefusedImageMakesRoomForTheNext) {
  const auto body = [](Trial& trial, const Context& context) {
    std::vector<KernelImage> images = kernel_images();
    // Code for another generation, which claims to be for this one.
    for (KernelImage& image : images) {
      if (!image.is_ptx) image.architecture = image.architecture == 80 ? 90 : 70;
    }
    const auto loaded = load_kernels(context, images, kNames);
    if (!trial.ok(loaded.status(), "loading")) return;
    trial.is(loaded->architecture == 90 && loaded->kernels.size() == 2, "the PTX is loaded");
  };
  EXPECT_EQ(with_device(driver_of(13000, 90), body), "");
}

TEST(KernelImageTest, ADeviceThatIsTooOldIsNamed) {
  const auto body = [](Trial& trial, const Context& context) {
    trial.fails(load_kernels(context, kernel_images(), kNames).status(), Code::kUnsupported,
                "need compute capability 8.0 or higher");
  };
  EXPECT_EQ(with_device(driver_of(13000, 75), body), "");
}

}  // namespace
}  // namespace tutti::cuda
