"""What the settings of every topic have in common."""

from pydantic_settings import BaseSettings, SettingsConfigDict

MEBIBYTE = 1024 * 1024
# A hundred years. The time of now minus a longer period is outside the range of dates.
MAX_DAYS = 36_500


class Topic(BaseSettings):
    """Settings are read from PLATFORM_* variables and never change. `Settings` is made of all topics."""

    model_config = SettingsConfigDict(env_prefix="PLATFORM_", frozen=True, extra="ignore")
