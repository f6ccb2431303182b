#include "gpt/model/activation_swap.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <algorithm>
#include <utility>

namespace gpt::model {

using torch::autograd::SavedVariableHooks;

// What one block keeps in a pass, by the memory in which it lies: several operators may keep the same, or parts of it.
struct ActivationSwap::OfLayer {
  struct Kept {
    const c10::StorageImpl* storage;
    int64_t size;      // bytes
    at::Tensor bytes;  // on the device, uint8 (size); undefined where they are not there
    std::function<void()> await = {};
  };

  explicit OfLayer(int64_t number) : number(number) {}

  const int64_t number;
  std::vector<const c10::StorageImpl*> staying = {};
  std::vector<Kept> kept = {};
  bool is_here = true;  // all of it, and awaited

  bool takes(const at::Tensor& tensor) const;
  size_t place_of(const at::Tensor& tensor);
  void leave(device::HostCopies& copies, std::vector<at::Tensor>& buffers);
  void fetch(device::HostCopies& copies, const std::vector<at::Tensor>& buffers);
  void await();
};

namespace {

// Whose forward pass this thread computes.
thread_local std::shared_ptr<ActivationSwap::OfLayer> current;

class KeepingFor {
 public:
  explicit KeepingFor(std::shared_ptr<ActivationSwap::OfLayer> layer) { current = std::move(layer); }
  ~KeepingFor() { current = nullptr; }
  KeepingFor(const KeepingFor&) = delete;
  KeepingFor& operator=(const KeepingFor&) = delete;
};

// What autograd has in place of a tensor that an operator of a block keeps.
class Waiting : public SavedVariableHooks {
 public:
  explicit Waiting(std::shared_ptr<ActivationSwap::OfLayer> layer) : layer_(std::move(layer)) {}

  void call_pack_hook(const at::Tensor& tensor) override {
    if (!layer_->takes(tensor)) {
      stays_ = tensor;
      return;
    }
    place_ = layer_->place_of(tensor);
    options_ = at::TensorOptions(tensor.device()).dtype(tensor.scalar_type());
    offset_ = tensor.storage_offset(), sizes_ = tensor.sizes().vec(), strides_ = tensor.strides().vec();
  }

  at::Tensor call_unpack_hook() override {
    if (stays_.defined()) return stays_;
    TORCH_CHECK(layer_->is_here, "ActivationSwap: what block ", layer_->number, " keeps is not on the device");
    return at::empty({0}, options_).set_(layer_->kept[place_].bytes.storage(), offset_, sizes_, strides_);
  }

 private:
  const std::shared_ptr<ActivationSwap::OfLayer> layer_;
  at::Tensor stays_;
  size_t place_ = 0;
  at::TensorOptions options_;
  int64_t offset_ = 0;
  std::vector<int64_t> sizes_, strides_;
};

// LibTorch asks its engine what is to be kept in place of tensors; for Python's hooks Python has an engine of its own, too.
class EngineWithHooks : public torch::autograd::Engine {
 public:
  // Never destroyed, because its threads wait for work until the program ends.
  static Engine& get() {
    static auto* const engine = new EngineWithHooks;
    return *engine;
  }
  std::unique_ptr<SavedVariableHooks> get_default_saved_variable_hooks() override {
    return current ? std::make_unique<Waiting>(current) : nullptr;
  }

 private:
  // LibTorch starts the threads of the devices for the first engine that computes in a process. That may have been another.
  EngineWithHooks() {
    initialize_device_threads_pool();
    if (device_ready_queues_.empty()) start_device_threads();
  }
};

}  // namespace

bool ActivationSwap::OfLayer::takes(const at::Tensor& tensor) const {
  constexpr size_t kWorthMoving = 64 << 10;  // what is smaller takes longer to begin to copy than to copy
  return tensor.is_floating_point() && tensor.storage().nbytes() >= kWorthMoving &&
         std::find(staying.begin(), staying.end(), tensor.storage().unsafeGetStorageImpl()) == staying.end();
}

size_t ActivationSwap::OfLayer::place_of(const at::Tensor& tensor) {
  const c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
  const auto found =
      std::find_if(kept.begin(), kept.end(), [storage](const Kept& one) { return one.storage == storage; });
  if (found != kept.end()) return static_cast<size_t>(found - kept.begin());
  const at::Tensor bytes = at::empty({0}, at::TensorOptions(tensor.device()).dtype(at::kByte)).set_(tensor.storage());
  kept.push_back({storage, bytes.numel(), bytes});
  return kept.size() - 1;
}

void ActivationSwap::OfLayer::leave(device::HostCopies& copies, std::vector<at::Tensor>& buffers) {
  buffers.resize(std::max(buffers.size(), kept.size()));
  for (size_t i = 0; i < kept.size(); ++i) {
    if (!buffers[i].defined() || buffers[i].numel() < kept[i].size) buffers[i] = copies.buffer(kept[i].size);
    copies.begin_out(std::exchange(kept[i].bytes, {}), buffers[i]);
  }
  is_here = false;
}

void ActivationSwap::OfLayer::fetch(device::HostCopies& copies, const std::vector<at::Tensor>& buffers) {
  for (size_t i = 0; i < kept.size(); ++i)
    if (!kept[i].bytes.defined()) std::tie(kept[i].bytes, kept[i].await) = copies.begin_in(buffers[i], kept[i].size);
}

void ActivationSwap::OfLayer::await() {
  for (Kept& one : kept)
    if (const auto wait = std::exchange(one.await, nullptr)) wait();
  is_here = true;
}

ActivationSwap::ActivationSwap(int64_t layers, std::shared_ptr<device::HostCopies> copies)
    : copies_(std::move(copies)), layers_(static_cast<size_t>(layers)), buffers_(layers_.size()) {
  torch::autograd::set_default_engine_stub(EngineWithHooks::get);
}

ActivationSwap::~ActivationSwap() = default;

void ActivationSwap::in_forward(int64_t layer, const ops::RotaryTables& stays, const std::function<void()>& work) {
  if (!is_swapped(layer)) return work();
  const auto keeping = std::make_shared<OfLayer>(layer);
  for (const at::Tensor* table : {&stays.cos, &stays.sin})
    if (table->defined()) keeping->staying.push_back(table->storage().unsafeGetStorageImpl());
  {
    const KeepingFor scope(keeping);
    work();
  }
  const auto number = static_cast<size_t>(layer);
  keeping->leave(*copies_, buffers_[number]);
  layers_[number] = keeping;
}

std::function<void(int64_t)> ActivationSwap::in_backward(std::function<void(int64_t)> done) {
  return [this, done = std::move(done)](int64_t layer) {
    passed(layer);
    if (done) done(layer);
  };
}

void ActivationSwap::passed(int64_t layer) {
  if (is_swapped(layer)) layers_[static_cast<size_t>(layer)].reset();
  fetch(layer - 1);
  if (OfLayer* const next = in_pass(layer - 1)) next->await();
  fetch(layer - 2);
}

void ActivationSwap::fetch(int64_t layer) {
  if (OfLayer* const wanted = in_pass(layer)) wanted->fetch(*copies_, buffers_[static_cast<size_t>(layer)]);
}

ActivationSwap::OfLayer* ActivationSwap::in_pass(int64_t layer) const {
  return is_swapped(layer) ? layers_[static_cast<size_t>(layer)].get() : nullptr;
}

int64_t ActivationSwap::host_bytes() const {
  int64_t bytes = 0;
  for (const std::vector<at::Tensor>& of_layer : buffers_)
    for (const at::Tensor& buffer : of_layer) bytes += buffer.numel();
  return bytes;
}

}  // namespace gpt::model
