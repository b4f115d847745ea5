"""What is known about datasets, LLMs and prices: cards, price lists, token counters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from feval.lazy import lazy_names

if TYPE_CHECKING:
    from feval.cards.billing import Price as Price
    from feval.cards.cards import DatasetCard as DatasetCard
    from feval.cards.cards import LLMCard as LLMCard
    from feval.cards.cards import dataset_card as dataset_card
    from feval.cards.cards import find_dataset_card as find_dataset_card
    from feval.cards.cards import find_llm_card as find_llm_card
    from feval.cards.cards import llm_card as llm_card
    from feval.cards.front_matter import read_card as read_card
    from feval.cards.names import DatasetType as DatasetType
    from feval.cards.names import LLMType as LLMType
    from feval.cards.prices import PriceList as PriceList
    from feval.cards.prices import ServingProfile as ServingProfile
    from feval.cards.prices import price_list as price_list
    from feval.cards.prices import serving_profile as serving_profile
    from feval.cards.tokens import count_words as count_words
    from feval.cards.tokens import token_counter as token_counter

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "cards": (
            "DatasetCard",
            "LLMCard",
            "dataset_card",
            "llm_card",
            "find_dataset_card",
            "find_llm_card",
        ),
        "billing": ("Price",),
        "front_matter": ("read_card",),
        "prices": ("PriceList", "ServingProfile", "price_list", "serving_profile"),
        "tokens": ("count_words", "token_counter"),
        "names": ("DatasetType", "LLMType"),
    },
)
