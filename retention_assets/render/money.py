"""Amounts of money in words, and the savings and costs of a report."""

from collections.abc import Iterator

from retention_assets.report import ReportMoney


def money_of(amount: float, currency: str) -> str:
    """Rounded to hundredths; an amount above zero is never 0.00."""
    return f"under 0.01 {currency}" if 0 < amount < 0.005 else f"{amount:,.2f} {currency}"


def money_rows(money: ReportMoney | None) -> Iterator[tuple[str, str]]:
    """Savings and costs of deleting, with their labels; empty where nothing has a price."""
    if money is None:
        return
    yield "saved", f"{money_of(money.saved, money.currency)} a month"
    for words, amount in (("requests", money.requests), ("billed although deleted early", money.early)):
        if amount:
            yield words, money_of(amount, money.currency)
