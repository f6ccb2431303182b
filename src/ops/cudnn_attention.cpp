#ifdef GPT_CUDA
#include "cudnn_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/cudnn/Handle.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/norm.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>
#include <cudnn_frontend.h>
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "gpt/core/error.h"
#include "gpt/core/log.h"
#include "gpt/core/process.h"
#include "gpt/device/graph.h"

namespace gpt::ops::cuda {
namespace {

namespace frontend = cudnn_frontend;
using TensorOfGraph = std::shared_ptr<frontend::graph::Tensor_attributes>;

void check(frontend::error_t result) { TORCH_CHECK(result.is_good(), "cuDNN: ", result.get_message()); }

// Heads of positions of samples, where `heads` of them lie side by side.
struct StridedHeads {
  int64_t count, heads;

  std::vector<int64_t> sizes(const PackedAttention& shape) const { return {shape.B, count, shape.T, shape.D}; }
  std::vector<int64_t> strides(const PackedAttention& shape) const {
    return {shape.T * heads * shape.D, shape.D, heads * shape.D, 1};
  }
};

class BackwardPass {
 public:
  explicit BackwardPass(const PackedAttention& shape) : shape_(shape) {
    const StridedHeads queries{shape.H, all()}, keys{shape.KV, all()}, outputs{shape.H, shape.H};
    graph_.set_io_data_type(shape.type == at::kHalf ? frontend::DataType_t::HALF : frontend::DataType_t::BFLOAT16)
        .set_intermediate_data_type(frontend::DataType_t::FLOAT)
        .set_compute_data_type(frontend::DataType_t::FLOAT);
    const auto q = input(kQ, queries), k = input(kK, keys), v = input(kV, keys), output = input(kOutput, outputs),
               output_gradient = input(kOutputGradient, outputs);
    const auto log_sum = graph_.tensor(frontend::graph::Tensor_attributes()
                                           .set_uid(kLogSum)
                                           .set_dim({shape.B, shape.H, shape.T, 1})
                                           .set_stride({shape.H * shape.T, shape.T, 1, 1})
                                           .set_data_type(frontend::DataType_t::FLOAT));
    const auto options = frontend::graph::SDPA_backward_attributes()
                             .set_attn_scale(static_cast<float>(1 / std::sqrt(static_cast<double>(shape.D))))
                             .set_diagonal_alignment(frontend::DiagonalAlignment_t::TOP_LEFT)
                             .set_diagonal_band_right_bound(0);
    const auto [of_q, of_k, of_v] = graph_.sdpa_backward(q, k, v, output, output_gradient, log_sum, options);
    return_(kOfQ, of_q, queries), return_(kOfK, of_k, keys), return_(kOfV, of_v, keys);
    check(graph_.build(at::native::getCudnnHandle(), {frontend::HeurMode_t::A}));
    check(graph_.get_workspace_size(workspace_bytes_));
  }

  void run(const AttentionPass& pass, const at::Tensor& output_gradient, const at::Tensor& gradient) {
    const auto& [qkv, output, log_sum] = pass;
    const auto heads_of = [this](const at::Tensor& packed, int64_t first) {
      return static_cast<char*>(packed.data_ptr()) + first * shape_.D * packed.element_size();
    };
    const int64_t first_k = shape_.H, first_v = shape_.H + shape_.KV;
    std::unordered_map<int64_t, void*> places{{kQ, heads_of(qkv, 0)},
                                              {kK, heads_of(qkv, first_k)},
                                              {kV, heads_of(qkv, first_v)},
                                              {kOutput, output.data_ptr()},
                                              {kLogSum, log_sum.data_ptr()},
                                              {kOutputGradient, output_gradient.data_ptr()},
                                              {kOfQ, heads_of(gradient, 0)},
                                              {kOfK, heads_of(gradient, first_k)},
                                              {kOfV, heads_of(gradient, first_v)}};
    // Freed when the kernels have been launched: what comes next on this stream may have it then.
    const at::Tensor workspace = at::empty({workspace_bytes_}, qkv.options().dtype(at::kByte));
    check(graph_.execute(at::native::getCudnnHandle(), places, workspace.data_ptr()));
  }

 private:
  enum Name : int64_t { kQ, kK, kV, kOutput, kLogSum, kOutputGradient, kOfQ, kOfK, kOfV };

  int64_t all() const { return shape_.H + 2 * shape_.KV; }

  TensorOfGraph input(Name name, const StridedHeads& heads) {
    return graph_.tensor(frontend::graph::Tensor_attributes()
                             .set_uid(name)
                             .set_dim(heads.sizes(shape_))
                             .set_stride(heads.strides(shape_)));
  }

  void return_(Name name, const TensorOfGraph& tensor, const StridedHeads& heads) {
    tensor->set_output(true).set_uid(name).set_dim(heads.sizes(shape_)).set_stride(heads.strides(shape_));
  }

  PackedAttention shape_;
  frontend::graph::Graph graph_;
  int64_t workspace_bytes_ = 0;
};

struct Known {
  std::unique_ptr<BackwardPass> pass;  // null: cuDNN has none, or a wrong one
  bool is_compared = false;
};

// Guards what is known, and cuDNN's plans, which not all can be executed by two threads at once: forward and backward pass are on
// different ones.
std::mutex mutex;
// Never destroyed, because CUDA may be gone by then.
std::map<PackedAttention, Known>& known() {
  static auto* const known = new std::map<PackedAttention, Known>;
  return *known;
}

void give_up(const PackedAttention& shape, const std::string& why) {
  cudaGetLastError();  // must not be reported by the next launch check
  known()[shape].pass = nullptr;
  log::warn(fmt::format("The gradient of attention for {} x {} tokens and {} heads of {} is packed from LibTorch's: {}",
                        shape.B, shape.T, shape.H, shape.D, why));
}

// By the first and the last sequence. Nothing where what is expected is not finite, as the gradient of a scaled loss may be.
std::optional<bool> is_near(const at::Tensor& gradient, const Heads& expected) {
  const double bound = gradient.scalar_type() == at::kHalf ? 2e-3 : 1e-2;
  int64_t first = 0;
  const at::Tensor heads = gradient.view({gradient.size(0), gradient.size(1), -1, expected.q.size(3)});
  for (const at::Tensor& part : {expected.q, expected.k, expected.v}) {
    for (const int64_t sequence : {int64_t{0}, part.size(0) - 1}) {
      const at::Tensor wanted = part.select(0, sequence).to(at::kFloat),
                       got = heads.narrow(2, first, part.size(2)).select(0, sequence).to(at::kFloat);
      const auto size = wanted.norm().item<double>(),
                 error = (got - wanted).norm().item<double>();  // sync: once a shape
      if (!std::isfinite(size)) return std::nullopt;
      if (!(error <= bound * size)) return false;
    }
    first += part.size(2);
  }
  return true;
}

at::Tensor packed(const Heads& heads) { return at::cat({heads.q, heads.k, heads.v}, 2).flatten(2); }

}  // namespace

bool has_packed_backward(const PackedAttention& shape) {
  const c10::cuda::CUDAGuard guard(shape.device);
  const std::lock_guard lock(mutex);
  const auto found = known().find(shape);
  if (found != known().end()) return found->second.pass != nullptr;
  if (device::is_recording()) return false;
  try {
    known()[shape].pass = std::make_unique<BackwardPass>(shape);
  } catch (const c10::Error& error) {
    give_up(shape, first_line(error.what()));
    if (!process::is_out_of_memory(error)) return false;
    known().erase(shape);
    throw;
  }
  return true;
}

at::Tensor packed_backward(const PackedAttention& shape, const AttentionPass& pass, const at::Tensor& output_gradient,
                           const std::function<Heads()>& by_libtorch) {
  const c10::cuda::CUDAGuard guard(shape.device);
  const std::lock_guard lock(mutex);
  Known& found = known().at(shape);
  if (!found.pass) return packed(by_libtorch());
  at::Tensor gradient = at::empty_like(pass.qkv);
  try {
    found.pass->run(pass, output_gradient, gradient);
  } catch (const c10::Error& error) {
    if (process::is_out_of_memory(error)) throw;
    give_up(shape, first_line(error.what()));
    return packed(by_libtorch());
  }
  if (found.is_compared || device::is_recording()) return gradient;
  found.is_compared = true;  // or cannot be
  Heads expected;
  try {
    expected = by_libtorch();
  } catch (const c10::Error& error) {
    if (process::is_out_of_memory(error)) throw;
    cudaGetLastError();
    log::warn("The gradient of attention could not be compared with LibTorch's: " + first_line(error.what()));
    return gradient;
  }
  const std::optional<bool> near = is_near(gradient, expected);
  found.is_compared = near.has_value();
  if (near.value_or(true)) return gradient;
  give_up(shape, "what cuDNN packed differs from it");
  return packed(expected);
}

}  // namespace gpt::ops::cuda
#endif
