// What is known of NVIDIA's cards from their data sheets, for utilization and for plans on machines that are not here.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "gpt/config/training_config.h"
#include "gpt/device/device.h"

namespace gpt::device {

struct Card {
  std::string_view name;  // as the driver has it, without "NVIDIA" and "GeForce"
  int gigabytes;          // memory, in units of 2^30 bytes
  double bandwidth;       // memory bandwidth, GB/s
  int capability;         // compute capability: 89 is 8.9
  // Dense TFLOP/s (half of the figures that NVIDIA gives "with sparsity") with float32 accumulation, on tensor cores but for
  // float32. 0: the card does not have the format.
  double bfloat16, float16, tf32, float32;

  // FLOP/s; nothing for a format that the card does not have, and for Dtype::automatic.
  std::optional<double> peak_flops(Dtype dtype) const;
  // The card as describe_device() would have it, with the memory that a program gets: error correction and the driver take the rest.
  DeviceInfo describe() const;
};

std::span<const Card> all_cards();

// What connects cards of a kind within one machine.
struct CardLink {
  std::string_view name;
  double bandwidth;  // GB/s that a card can send, while it receives as much
};
// NVLink where it joins all cards of a machine, otherwise PCIe as the card has it; by compute capability for one that is not in the table.
CardLink link_of(const DeviceInfo& gpu);

// Finds a card by the driver's name or a person's: capitals, spaces, "NVIDIA", "GeForce" and "RTX" make no difference, and neither
// do memory and form ("80GB", "SXM4") where they tell no cards apart; where they would and are missing, the first of the table.
// Another version of a card ("Laptop", "MIG") is another card. Null for one that is not in the table.
const Card* find_card(std::string_view name);

// Throws gpt::Error(config) with the nearest names and all of them. `flag` names the option in the message.
const Card& require_card(const std::string& flag, const std::string& name);

}  // namespace gpt::device
