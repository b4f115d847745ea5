"""What is known about datasets, LLMs and prices: cards, price lists, token counters."""

from typing import TYPE_CHECKING

from feval.lazy import lazy_names

if TYPE_CHECKING:
    from feval.cards.billing import Price
    from feval.cards.cards import (
        DatasetCard,
        LLMCard,
        dataset_card,
        find_dataset_card,
        find_llm_card,
        llm_card,
        price_ids,
        thoughts_of,
    )
    from feval.cards.names import FINISH_REASONS, UNANSWERED, DatasetType, LLMType
    from feval.cards.prices import PriceList, price_list
    from feval.cards.serving import ServingProfile, serving_profile
    from feval.cards.tokens import count_words, token_counter

__all__ = [
    "FINISH_REASONS",
    "UNANSWERED",
    "DatasetCard",
    "DatasetType",
    "LLMCard",
    "LLMType",
    "Price",
    "PriceList",
    "ServingProfile",
    "count_words",
    "dataset_card",
    "find_dataset_card",
    "find_llm_card",
    "llm_card",
    "price_ids",
    "price_list",
    "serving_profile",
    "thoughts_of",
    "token_counter",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "cards": "DatasetCard LLMCard dataset_card llm_card find_dataset_card find_llm_card"
        " thoughts_of price_ids",
        "billing": "Price",
        "prices": "PriceList price_list",
        "serving": "ServingProfile serving_profile",
        "tokens": "count_words token_counter",
        "names": "DatasetType LLMType FINISH_REASONS UNANSWERED",
    },
)
